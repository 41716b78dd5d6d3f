"""`bam-lab prove`: what must hold of every system of an ablation, tried on actual models."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from bam_lab.cli import options
from bam_lab.cli.output import console, print_json, table
from bam_lab.errors import EXIT_STAGE_FAILED, SpecError
from bam_lab.record.proofs import Outcome, verdicts
from bam_lab.record.store import Store, store_root

if TYPE_CHECKING:
    from bam_lab.run.prove import Proved
    from bam_lab.spec.resolved import ResolvedAblation

_MARKS = {
    "holds": "[green]✓[/green]",
    "declared": "declared",
    "unexpected": "[red]UNEXPECTED[/red]",
}


def prove(
    reference: options.Reference,
    arm: Annotated[
        list[str] | None, typer.Option("--arm", metavar="NAME", help="This arm only; repeatable.")
    ] = None,
    scale: options.Scale = None,
    overrides: options.Overrides = None,
    store: options.StorePath = None,
    json: options.Json = False,
) -> None:
    """Prove causality, origins, gradients and cost of every arm; exit 1 if one is broken.

    On the store's models where they are upcycled already, else on random ones of their shape.
    """
    from bam_lab.run.reproduce import require
    from bam_lab.spec.load import load_ablation

    resolved = load_ablation(reference, scale=scale, overrides=overrides or ())
    arms = _arms(resolved, arm)
    require({"upcycle"})
    found, without = _prove(resolved, Store(store_root(store)), arms)
    if json:
        print_json(_as_json(resolved, found, without))
    else:
        _show(found, without, console())
    if any(v.outcome == "unexpected" for one in found for v in verdicts(one.facts)):
        raise typer.Exit(EXIT_STAGE_FAILED)


def _arms(resolved: "ResolvedAblation", asked: Sequence[str] | None) -> list[str]:
    unknown = [name for name in asked or () if name not in resolved.arms]
    if unknown:
        from bam_lab.spec.messages import nearest

        raise SpecError(
            [f"--arm must be an arm of it, got {n}. {nearest(n, resolved.arms)}" for n in unknown]
        )
    return list(dict.fromkeys(asked)) if asked else list(resolved.arms)


def _prove(
    resolved: "ResolvedAblation", store: Store, arms: Sequence[str]
) -> tuple[list["Proved"], dict[str, str]]:
    """Return what was proved, and why nothing was of the arms that are left out."""
    from bam_lab.run.prove import Proved, prove_arm, unproved

    found: list[Proved] = []
    without: dict[str, str] = {}
    with Console(stderr=True).status("") as status:
        for name in arms:
            status.update(f"proving {escape(name)}")
            without |= {name: why} if (why := unproved(resolved.arms[name])) else {}
            if name not in without:
                found += prove_arm(resolved, store, name)
    return found, without


def _show(found: list["Proved"], without: dict[str, str], out: Console) -> None:
    made = table("arm", "proof", "", "found")
    for one in found:
        for i, verdict in enumerate(verdicts(one.facts)):
            head = escape(_label(one)) if i == 0 else ""
            made.add_row(head, verdict.proof, _MARKS[verdict.outcome], escape(verdict.found))
        made.add_section()
    out.print(made, markup=True)
    for line in _declared(found):
        out.print(line, markup=False)
    for arm, why in without.items():
        out.print(f"{arm}: nothing to prove; it {why}.", markup=False)
    outcomes = [verdict.outcome for one in found for verdict in verdicts(one.facts)]
    told: dict[Outcome, str] = {
        "holds": "hold",
        "declared": "declared",
        "unexpected": "UNEXPECTED",
    }
    counts = ", ".join(f"{outcomes.count(name)} {text}" for name, text in told.items())
    out.print(f"{len(outcomes)} proofs: {counts}. {_models(found)}", markup=False)


def _label(one: "Proved") -> str:
    return f"{one.arm} ({one.part})" if one.part else one.arm


def _declared(found: list["Proved"]) -> list[str]:
    """Return a line for each declared break: the arms, what is broken, and why."""
    arms: dict[tuple[str, str], list[str]] = {}
    for one in found:
        for verdict in verdicts(one.facts):
            if verdict.outcome == "declared":
                arms.setdefault((verdict.proof, verdict.reason), []).append(_label(one))
    return [
        f"declared: {', '.join(names)}: {proof}: {reason}."
        for (proof, reason), names in arms.items()
    ]


def _models(found: list["Proved"]) -> str:
    stored = [one.arm for one in found if one.models != "random"]
    if not stored:
        return "On random models of the spec's shape, on random tokens: no arm is upcycled yet."
    rest = len(found) - len(stored)
    others = f"; {rest} others on random models of their shape" if rest else ""
    return f"On the store's models at step 0 and its held-out text: {', '.join(stored)}{others}."


def _as_json(
    resolved: "ResolvedAblation", found: list["Proved"], without: dict[str, str]
) -> dict[str, Any]:
    return {
        "id": resolved.ablation.id,
        "scale": resolved.scale_name,
        "arms": [
            {
                "arm": one.arm,
                "part": one.part,
                "models": one.models,
                "verdicts": [vars(verdict) for verdict in verdicts(one.facts)],
                "facts": one.facts,
            }
            for one in found
        ],
        "without": without,
    }
