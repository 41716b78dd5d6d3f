"""`bam-lab bench`: how fast every system trains and decodes here, beside transformers' models."""

from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from bam_lab.cli import options
from bam_lab.cli.output import amount, console, print_json, size, table
from bam_lab.record.manifest import cores, cpu_name

if TYPE_CHECKING:
    from bam_lab.run.bench import Bench, Measured, Target

ShapeName = Literal["nano", "20m"]


def bench(
    shape: Annotated[
        ShapeName | None, typer.Option("--shape", help="This shape only; both if not given.")
    ] = None,
    system: Annotated[
        list[str] | None,
        typer.Option("--system", metavar="NAME", help="This row only; repeatable."),
    ] = None,
    precision: options.PrecisionOption = "auto",
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, metavar="N", help="All cores if not given.")
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, metavar="N", help="Turns of each row; medians.")
    ] = 7,
    json: options.Json = False,
) -> None:
    """Time a training step and decoding of every system on the CPU; say which targets are met."""
    from bam_lab.record.numerics import cpu_has_bf16
    from bam_lab.run.bench import Bench
    from bam_lab.run.bench import bench as measure
    from bam_lab.run.bench_systems import SHAPES
    from bam_lab.run.reproduce import require

    require({"upcycle"})
    if precision == "auto":
        precision = "bf16-mixed" if cpu_has_bf16() else "float32"
    made: list[Bench] = []
    with Console(stderr=True).status("") as status:

        def told(text: str) -> None:
            status.update(escape(text))

        for name in [shape] if shape else SHAPES:
            rows = system or ()
            made.append(measure(SHAPES[name], rows, precision, threads or cores(), rounds, told))
    if json:
        print_json([_as_json(one) for one in made])
        return
    for one in made:
        _show(one, console())


def _show(made: "Bench", out: Console) -> None:
    from bam_lab.cost.match import DENSE
    from bam_lab.cost.params import count
    from bam_lab.run.bench import targets

    model = made.shape.model
    out.print(
        f"[bold]{made.shape.name}[/bold]: {amount(count(model, DENSE, 1).total)} parameters "
        f"when dense, vocabulary {model.vocab_size}, dim {model.dim}, {model.num_layers} layers, "
        f"ffn_dim {model.ffn_dim}, sequences of {model.max_seq_len}; {made.precision}, "
        f"{made.threads} threads of {escape(cpu_name())}; matrix products "
        f"{amount(made.matrix_rate)}FLOP/s.",
        markup=True,
    )
    shown = table("system", ">tokens/s", ">step", ">CPU", ">of peak", ">memory", ">decode/s")
    for one in made.rows:
        shown.add_row(one.row.name, *_cells(made, one))
    out.print(shown)
    for text in _notes(made):
        out.print(text, markup=False)
    for target in targets(made):
        out.print(_verdict(target), markup=False)
    out.print()


def _cells(made: "Bench", one: "Measured") -> Sequence[str]:
    from bam_lab.run.bench import executed

    if one.failure:
        return ["--"] * 6
    ours = one.row.library == "bam-lab"
    share = executed(one) / one.step / made.matrix_rate if ours else None
    return [
        f"{one.tokens / one.step:,.0f}",
        f"{1000 * one.step:,.0f} ms",
        f"{1000 * median(one.cpu):,.0f} ms",
        f"{share:.0%}" if share is not None else "",
        size(one.peak_bytes),
        f"{_decoded(one) / one.decode:,.0f}" if one.decode else "--",
    ]


def _decoded(one: "Measured") -> int:
    from bam_lab.run.bench_systems import DECODED_ROWS, NEW

    return min(DECODED_ROWS, one.row.batch) * NEW


def _notes(made: "Bench") -> list[str]:
    notes = [f"{one.row.name}: {one.failure}" for one in made.rows if one.failure]
    notes += [
        f"{one.row.name} does not decode: {one.decode_failure}"
        for one in made.rows
        if one.decode_failure
    ]
    if not made.transformers:
        notes.append("transformers' rows need it installed. Run: pip install 'bam-lab[hf]'")
    return notes


def _verdict(target: "Target") -> str:
    if target.value is None:
        return f"not measured: {target.text}."
    return f"{'met' if target.met else 'NOT MET'}: {target.text}: {target.value:.3g}."


def _as_json(made: "Bench") -> dict[str, Any]:
    from bam_lab.run.bench import executed, targets

    return {
        "shape": made.shape.name,
        "model": made.shape.model.model_dump(mode="json", by_alias=True),
        "precision": made.precision,
        "threads": made.threads,
        "cpu": cpu_name(),
        "matrix_flops_per_s": made.matrix_rate,
        "transformers": made.transformers,
        "rows": [_row_json(one, executed(one)) for one in made.rows],
        "targets": [{**asdict(target), "met": target.met} for target in targets(made)],
    }


def _row_json(one: "Measured", flops: int) -> dict[str, Any]:
    row = one.row
    return {
        "name": row.name,
        "library": row.library,
        "num_experts": row.num_experts,
        "sequences": row.batch,
        "seq_len": row.model.max_seq_len,
        "tokens_per_s": None if one.failure else one.tokens / one.step,
        "step_seconds": None if one.failure else one.step,
        "forward_backward_seconds": one.forward_backward,
        "optimizer_seconds": one.optimizer,
        "cpu_seconds": one.cpu,
        "executed_flops": flops if row.library == "bam-lab" else None,
        "peak_bytes": one.peak_bytes,
        "decode_seconds": one.decode,
        "failure": one.failure,
        "decode_failure": one.decode_failure,
    }
