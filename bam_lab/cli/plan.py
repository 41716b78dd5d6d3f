"""`bam-lab plan`: what an ablation will cost, before anything runs."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from rich.console import Console
from rich.table import Table

from bam_lab.cli import options
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
    json: options.Json = False,
) -> None:
    """Show parameters, FLOPs, steps, time and memory of every arm and stage.

    With --scale and no ID: the scale's sizes, and the papers' printed counts beside ours.
    With --all: the price of all ablations together, and what sharing saves.
    """
    if every:
        given = {"ID": reference, "--set": overrides, "--domain": domains, "--workers": workers}
        return _all(
            [name for name, value in given.items() if value], scale, replicates, store, json
        )
    if reference is None:
        given = {"--set": overrides, "--domain": domains, "--replicates": replicates}
        return _scale(scale, [name for name, value in given.items() if value], json)
    from bam_lab.cli.planning import as_json, make_plan

    resolved = resolve(reference, scale, overrides, domains, store_root(store))
    made = make_plan(resolved, Store(store_root(store)), replicates, workers)
    if json:
        print_json(as_json(made))
    else:
        show(made, console())


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
    out.print(f"[bold]{spec.id}[/bold]: {spec.title}")
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
    _totals(made, out)


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
    untrained = [arm for arm, method in made.resolved.arms.items() if not is_trained(method)]
    if untrained:
        verb = "are" if len(untrained) > 1 else "is"
        yield f"{', '.join(untrained)} {verb} not trained, so outside the match."


def _match(made: "Plan") -> str:
    match, baseline = made.resolved.ablation.match, made.resolved.ablation.baseline
    if match.on == "tokens":
        return f"tokens of the mixture phase (baseline {baseline})"
    where = "the mixture phase" if match.phase == "mixture" else "all phases"
    return f"model training FLOPs of {where} (baseline {baseline})"


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


def _order(row: tuple["StageRow", int, int]) -> int:
    return _ORDER.index(row[0].name)


def _merged(made: "Plan") -> list[tuple["StageRow", int, int]]:
    """Return one row for a stage's replicates, and one for all upcyclings and all evaluations."""
    groups: dict[tuple[str, str], list[StageRow]] = {}
    for row in made.stages:
        whole = row.name in ("upcycle", "evaluate")
        groups.setdefault((row.name, "" if whole else _label(row)), []).append(row)
    return [
        (max(rows, key=lambda row: row.peak_bytes), len(rows), sum(row.done for row in rows))
        for rows in groups.values()
    ]


def _label(row: "StageRow") -> str:
    if row.name in ("upcycle", "evaluate"):
        return f"{row.name} (each)"
    suffix = "" if row.replicate is None else f" r{row.replicate}"
    return row.label.removesuffix(suffix)


def _badge(made: "Plan", row: "StageRow") -> str:
    budget = next(model.budget for model in made.models if model.arm == row.arm)
    assert budget is not None
    if row.arm == made.resolved.of(row.arm or "").ablation.baseline:
        return "baseline"
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
    if not made.known:
        out.print("The corpus is not built yet; what is done after it shows then.", style="dim")
