"""`bam-lab plan`: what an ablation will cost, before anything runs."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bam_lab.cli import options, plan_lineage
from bam_lab.cli.domains import resolve
from bam_lab.cli.output import amount, console, duration, print_json, size, table
from bam_lab.errors import SpecError
from bam_lab.record.stages import StageName
from bam_lab.record.store import Store, store_root
from bam_lab.spec.experts import is_trained
from bam_lab.spec.methods import DenseMethod

if TYPE_CHECKING:
    from bam_lab.cli.planning import Plan, StageRow


LEGEND = (
    "FLOPs of one token. model: what the mathematics needs, forward and in training (matching "
    "counts this); executed: what the code runs in training; printed: the paper's own forward sum."
)


def plan(
    reference: options.OptionalReference = None,
    every: options.All = False,
    scale: options.Scale = None,
    overrides: options.Overrides = None,
    domains: options.Domains = None,
    replicates: options.Replicates = None,
    store: options.StorePath = None,
    workers: options.Workers = None,
    device: options.Device = None,
    count: options.Count = None,
    mfu: options.Mfu = None,
    json: options.Json = False,
) -> None:
    """Show parameters, FLOPs, steps, time and memory of every arm and stage.

    At a paper's scale also what the paper prints of it, beside our counts.
    With --scale and no ID: the scale's sizes, and the papers' printed counts beside ours.
    With --all: the price of all ablations together, and what sharing saves.
    With --device: also hours, memory and tokens a second on such devices.
    """
    on_device: dict[str, object] = {"--device": device, "--count": count, "--mfu": mfu}
    if every:
        given = {"ID": reference, "--set": overrides, "--domain": domains, "--workers": workers}
        return _all(_given(given | on_device), scale, replicates, store, json)
    if reference is None:
        given = {"--set": overrides, "--domain": domains, "--replicates": replicates}
        return _scale(scale, _given(given | on_device), json)
    from bam_lab.cli import plan_device, plan_scale
    from bam_lab.cli.planning import as_json, make_plan

    cluster = plan_device.cluster_of(device, count, mfu)
    resolved = resolve(reference, scale, overrides, domains, store_root(store))
    made = make_plan(resolved, Store(store_root(store)), replicates, workers)
    abroad = plan_device.abroad(made, cluster) if cluster else None
    printed = plan_scale.printed_of(resolved)
    if json:
        more: dict[str, Any] = {"on_device": plan_device.as_json(abroad)} if abroad else {}
        print_json(as_json(made) | {"printed": [asdict(row) for row in printed]} | more)
        return
    show(made, console())
    if printed:
        console().print()
        plan_scale.show_printed(printed, console())
    if abroad:
        plan_device.show(_alike(made), abroad, console())


def _given(options: Mapping[str, object]) -> list[str]:
    return [name for name, value in options.items() if value is not None]


def _all(
    without_effect: list[str],
    scale: str | None,
    replicates: int | None,
    store: Path | None,
    json: bool,
) -> None:
    from bam_lab.cli import price
    from bam_lab.spec.load import list_ablations

    if without_effect:
        raise SpecError(f"--all must stand without {without_effect[0]}, got both. Leave one out.")
    references = [path.stem for path in list_ablations()]
    found = price.price(references, Store(store_root(store)), scale, replicates)
    if json:
        print_json(price.as_json(found))
    else:
        price.show(found, console())
    price.refuse_problems(found)


def _scale(name: str | None, without_effect: list[str], json: bool) -> None:
    from bam_lab.cli import plan_scale

    if name is None:
        raise SpecError("plan must have the ID of an ablation, or a --scale, got neither. Add one.")
    if without_effect:
        raise SpecError(
            f"{without_effect[0]} must stand with the ID of an ablation, got none. Add one."
        )
    scale, model = plan_scale.load_scale(name)
    if json:
        print_json(plan_scale.as_json(name, scale, model))
    else:
        plan_scale.show(name, scale, model, console())


def show(made: "Plan", out: Console) -> None:
    """Print a plan for people."""
    resolved, spec = made.resolved, made.resolved.ablation
    repeats = "1 replicate" if made.replicates == 1 else f"{made.replicates} replicates"
    out.print(f"[bold]{spec.id}[/bold]: {escape(spec.title)}", markup=True)
    out.print(f"{spec.source.place}. {spec.question}")
    out.print(f"scale {resolved.scale_name}, {repeats}, matched on {_match(made)}\n")
    for text in resolved.changes:
        out.print(f"changed: {text} (these runs never enter a published report)")
    out.print(_models(made, wide=out.width >= 100))
    out.print(f"{LEGEND}\n", style="dim")
    out.print(_experts(made))
    for line in _notes(made):
        out.print(line)
    out.print()
    out.print(_stages(made))
    out.print()
    out.print(plan_lineage.shown(made))
    out.print(plan_lineage.LEGEND, style="dim")
    _totals(made, out)


def _alike(made: "Plan") -> "Iterator[tuple[str, list[StageRow]]]":
    """Yield the training stages in the order of the phases, replicates together."""
    groups: dict[tuple[int, str], list[StageRow]] = {}
    for row in made.stages:
        if row.steps:
            groups.setdefault((_ORDER.index(row.name), _label(row)), []).append(row)
    for (_, label), rows in sorted(groups.items(), key=lambda item: item[0][0]):
        yield label, rows


def is_done(made: "Plan") -> bool:
    """Say whether nothing is left to run."""
    return all(row.done for row in made.stages)


def _notes(made: "Plan") -> Iterator[str]:
    """Say what the tables do not: other text or widths, and arms that no match can reach."""
    for arm, data in made.resolved.data.items():
        yield f"{arm} reads: {data.words()}."
    for arm, method in made.resolved.arms.items():
        if isinstance(method, DenseMethod) and method.ffn_dim is not None:
            yield f"{arm}: a dense model with ffn_dim {method.ffn_dim}."
    yield from _solved(made)
    untrained = [arm for arm, method in made.resolved.arms.items() if not is_trained(method)]
    if untrained:
        verb = "are" if len(untrained) > 1 else "is"
        yield f"{', '.join(untrained)} {verb} not trained, so outside the match."


def _solved(made: "Plan") -> Iterator[str]:
    """Say what the match chose, or that it is still to be measured."""
    from bam_lab.cost.match.knobs import knobs_of
    from bam_lab.spec.knobs import value_of

    for row in made.models:
        if row.budget is None:
            continue
        child = made.resolved.of(row.arm)
        model, experts = child.model, child.recipe.mixture.experts
        values = [
            f"{knob} {value_of(child.arms[row.arm], knob, model, experts)}"
            for knob in knobs_of(child, row.arm)
        ]
        if row.budget.batch_sequences != child.scale.phases.mixture.batch_sequences:
            values.append(f"batches of {row.budget.batch_sequences} sequences")
        if values:
            guess = "" if row.budget.known else " (known after calibration; by FLOPs until then)"
            ratio = f"{row.budget.match_ratio:.4f} of the baseline's"
            yield f"{row.arm}: {' and '.join(values)} by the match, {ratio}{guess}."
    if made.resolved.ablation.match.on == "device-time" and not _measured(made):
        yield "Steps are known after calibration; until then FLOPs stand in for seconds."


def _measured(made: "Plan") -> bool:
    return all(row.budget.known for row in made.models if row.budget is not None)


def _match(made: "Plan") -> str:
    from bam_lab.cost.match.words import equal_things

    match, baseline = made.resolved.ablation.match, made.resolved.ablation.baseline
    return f"{equal_things(match)} (baseline {baseline})"


def _models(made: "Plan", wide: bool) -> Table:
    paper = [">active (paper)"] if wide else []
    made_table = table(
        "arm",
        ">params",
        ">active",
        *paper,
        ">model fwd",
        ">train",
        ">executed",
        ">printed",
    )
    for row in made.models:
        made_table.add_row(
            f"dense models {row.arm}".strip() if row.budget is None else row.arm,
            amount(row.params.total),
            amount(row.params.active),
            *([amount(row.params.active_printed)] if wide else []),
            amount(row.flops.model_forward),
            amount(row.flops.model_training),
            amount(row.flops.executed_training),
            amount(row.flops.printed_forward),
        )
    return made_table


def _experts(made: "Plan") -> Table:
    """Say what is behind each arm's experts, in router-column order."""
    from bam_lab.spec.experts import listed

    made_table = table("arm", ">experts", "made of")
    arms = [row for row in made.models if row.budget is not None]
    # An arm's experts are the same under most settings, and then said once.
    rows = dict.fromkeys((row.arm.partition("@")[0], row.experts) for row in arms)
    same = len({arm for arm, _ in rows}) == len(rows)
    for arm, experts in rows if same else ((row.arm, row.experts) for row in arms):
        made_table.add_row(arm, f"{len(experts)}", listed(experts))
    return made_table


def _stages(made: "Plan") -> Table:
    made_table = table("stage", ">done", ">steps", ">tokens", ">FLOPs", "match", ">time", ">memory")
    for kind, rows in groupby(sorted(_merged(made), key=_order), key=lambda row: row[0].name):
        for first, count, done in rows:
            training = first.steps > 0
            made_table.add_row(
                _label(first),
                f"{done}/{count}",
                f"{first.steps:,}" if training else "",
                amount(first.tokens) if first.tokens else "",
                amount(first.training_flops) if training else "",
                _badge(made, first) if kind == "mixture" else "",
                duration(first.seconds),
                size(first.peak_bytes),
            )
    return made_table


_ORDER = get_args(StageName)
_EACH: tuple[StageName, ...] = ("upcycle", "evaluate", "tasks", "routing", "probe")
"""Stages that many models have alike."""


def _order(row: tuple["StageRow", int, int]) -> int:
    return _ORDER.index(row[0].name)


def _merged(made: "Plan") -> list[tuple["StageRow", int, int]]:
    """Return one row for a stage's replicates, and one for all stages of a kind in `_EACH`."""
    groups: dict[tuple[str, str], list[StageRow]] = {}
    for row in made.stages:
        whole = row.name in _EACH
        groups.setdefault((row.name, "" if whole else _label(row)), []).append(row)
    return [
        (max(rows, key=lambda row: row.peak_bytes), len(rows), sum(row.done for row in rows))
        for rows in groups.values()
    ]


def _label(row: "StageRow") -> str:
    if row.name in _EACH:
        return f"{row.name} (each)"
    suffix = "" if row.replicate is None else f" r{row.replicate}"
    return row.label.removesuffix(suffix)


def _badge(made: "Plan", row: "StageRow") -> str:
    budget = next(model.budget for model in made.models if model.arm == row.arm)
    assert budget is not None
    under = made.resolved.of(row.arm or "")
    if row.arm == under.ablation.baseline and under.first is None:
        return "baseline"
    if not budget.known:
        return "not known yet"
    from bam_lab.cost.match import TOLERANCE

    off = round(100 * (budget.match_ratio - 1), 2) + 0.0  # no -0.00
    if abs(off) <= 100 * TOLERANCE:
        return f"= {off:+.2f}%"
    return f"1 step {off:+.1f}%" if budget.matched else f"differs {off:+.1f}%"


def _totals(made: "Plan", out: Console) -> None:
    flops = sum(row.training_flops for row in made.stages)
    done = sum(row.done for row in made.stages)
    out.print(
        f"\n{len(made.stages)} stages, {done} done; {amount(flops)} training FLOPs; "
        f"about {duration(made.seconds_left)} left, {size(made.peak_bytes)} of memory "
        f"({made.workers} at once)."
    )
    out.print(f"Times: {made.pace}.", style="dim")
    if not made.corpus_built:
        out.print("The corpus is not built yet; what is done after it shows then.", style="dim")
    elif not made.known:
        out.print("Models are not timed yet; what is done of arms shows then.", style="dim")
