"""`plan --scale NAME`: the papers' counts beside ours, and without an ablation a scale's sizes."""

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from bam_lab import resources
from bam_lab.cli.output import amount, table
from bam_lab.cost import papers
from bam_lab.cost.flops import per_token
from bam_lab.cost.params import count
from bam_lab.errors import SpecError
from bam_lab.spec.messages import nearest
from bam_lab.spec.methods import DenseMethod
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.published import PublishedTable
from bam_lab.spec.reader import read
from bam_lab.spec.resolved import ResolvedAblation
from bam_lab.spec.scale import ScaleSpec

DENSE = DenseMethod(method="dense")


@dataclass(frozen=True)
class PrintedRow:
    """Hold one printed number beside ours."""

    paper: str
    place: str
    row: str
    column: str
    printed: float
    unit: str
    counted: int
    verdict: papers.Verdict
    note: str


def load_scale(name: str) -> tuple[ScaleSpec, ModelSpec]:
    """Return the scale `name` of `configs/scale` with its model.

    Raises:
        SpecError: there is none of that name.
    """
    folder = resources.folder("configs")
    path = folder / "scale" / f"{name}.yaml"
    known = [found.stem for found in path.parent.glob("*.yaml")]
    if name not in known:
        raise SpecError(
            f"--scale must name a file of configs/scale, got {name!r}. {nearest(name, known)}"
        )
    scale = read(path, ScaleSpec)
    return scale, read(folder / "model" / f"{scale.model}.yaml", ModelSpec)


def printed_rows(name: str, model: ModelSpec) -> list[PrintedRow]:
    """Return the papers' numbers for the model `name` of `configs/model`."""
    return [_row(cell, model) for cell in papers.cells_of(name)]


def printed_of(resolved: ResolvedAblation) -> list[PrintedRow]:
    """Return the numbers that an ablation's own paper prints of its scale's model, if unchanged."""
    rows = [] if resolved.changes else printed_rows(resolved.scale.model, resolved.model)
    return [row for row in rows if row.paper == resolved.ablation.source.paper]


def as_json(name: str, scale: ScaleSpec, model: ModelSpec) -> dict[str, Any]:
    """Return a scale's sizes and printed numbers as plain data."""
    return {
        "scale": name,
        "model": scale.model,
        "params": count(model, DENSE, 1).total,
        "phases": scale.phases.model_dump(),
        "printed": [asdict(row) for row in printed_rows(scale.model, model)],
    }


def show(name: str, scale: ScaleSpec, model: ModelSpec, out: Console) -> None:
    """Print a scale for people."""
    dense = count(model, DENSE, 1).total
    head = f"[bold]{name}[/bold]: model {scale.model}, {dense:,} parameters dense"
    out.print(head, markup=True)
    flops = per_token(model, DENSE, 1, model.max_seq_len).model_training
    phases = table("phase", ">tokens", ">batch tokens", ">peak lr", ">warm-up", ">FLOPs (dense)")
    for phase, size in scale.phases:
        phases.add_row(
            phase,
            amount(size.tokens),
            amount(size.batch_sequences * model.max_seq_len),
            f"{size.peak_lr:g}",
            f"{size.warmup_steps:,}",
            amount(flops * size.tokens),
        )
    out.print(phases)
    rows = printed_rows(scale.model, model)
    out.print()
    if not rows:
        out.print("No paper prints a count of this shape.")
        return
    show_printed(rows, out)


def show_printed(rows: list[PrintedRow], out: Console) -> None:
    """Print the papers' numbers beside ours, and what is wrong with them below."""
    out.print(f"Printed in {rows[0].paper}, and counted here:")
    made = table("place", "model", "number", ">printed", ">counted", "")
    notes: dict[str, int] = {}
    for row in rows:
        mark: str = row.verdict
        if row.note or row.verdict != "equal":
            mark += f" [{notes.setdefault(row.note or 'Nothing is noted.', len(notes) + 1)}]"
        made.add_row(
            row.place,
            row.row,
            row.column,
            _printed(row.printed, row.unit),
            f"{row.counted:,}",
            mark,
        )
    out.print(made, markup=False)
    for note, number in notes.items():
        out.print(f"[{number}] {note}", markup=False, style="dim")


def _row(cell: papers.PrintedCell, model: ModelSpec) -> PrintedRow:
    published = read(resources.folder("published") / f"{cell.table}.yaml", PublishedTable)
    row = next(row for row in published.rows if row.arm == cell.row)
    printed, ours = row.values[cell.column], papers.counted(cell, model)
    column = published.columns[cell.column]
    return PrintedRow(
        paper=published.paper,
        place=published.place.partition(";")[0],
        row=row.arm,
        column=column.name,
        printed=printed,
        unit=column.unit,
        counted=ours,
        verdict=papers.verdict(printed, ours, cell.per_unit),
        note=published.note(row, cell.column) or row.note,
    )


def _printed(value: float, unit: str) -> str:
    if unit.startswith("B "):
        return f"{value:g}B"
    return f"{value / 1e6:g}M" if value >= 1e6 and value % 1e6 == 0 else f"{value:,.0f}"
