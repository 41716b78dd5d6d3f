"""What the papers leave open of the text that each phase reads, and its order."""

from collections.abc import Callable
from typing import Any

from bam_lab.report.assumption_entry import Entry
from bam_lab.report.evidence import Arm, Evidence
from bam_lab.report.settings import shown
from bam_lab.spec.data import Similar, times


def _each(evidence: Evidence, read: Callable[[dict[str, Any]], str]) -> str:
    """Return what all arms' data say, else each value with the arms that it is of."""
    found: dict[str, list[str]] = {}
    for arm in evidence.arms:
        found.setdefault(read(_data(evidence, arm)), []).append(shown(arm.name))
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{value} ({', '.join(arms)})" for value, arms in found.items())


def _data(evidence: Evidence, arm: Arm) -> dict[str, Any]:
    # Results from before arms had data of their own say it in the recipe alone.
    recipe = evidence.recipe
    share, mix = recipe["expert"]["general_share"], recipe["mixture"]["mix"]
    return {"general_share": share, "mix": mix, "order": "random"} | arm.data


def _mix(evidence: Evidence, mix: dict[str, float]) -> str:
    """Return a data mix in the order of the report's columns."""
    return ", ".join(f"{name} {mix[name]:.0%}" for name in evidence.domains if name in mix)


def _repeats(data: dict[str, Any]) -> str:
    count = data.get("general_repeats")
    return "as often as the corpus makes necessary" if count is None else times(count)


def _order(data: dict[str, Any]) -> str:
    order = data["order"]
    return "random" if order == "random" else Similar(**order).label


ENTRIES = (
    Entry(
        "General share in each branch's data mix",
        lambda e: _each(e, lambda data: f"{100 * data['general_share']:g}%"),
        "stated",
        "BAM §5: 10% Common Crawl",
        "what stands in for Common Crawl is named under Text",
        stated="10%",
    ),
    Entry(
        "How often a phase reads the same general text",
        lambda e: _each(e, _repeats),
        "ours",
        "BAM, rebuttal: Common Crawl is large enough to be repeated little",
    ),
    Entry(
        "Data mix of the seed model",
        lambda e: _mix(e, e.recipe["seed_model"]["mix"]),
        "ours",
        "BAM: an unnamed general mix",
        "a share of the domains, so that the seed model knows something of each",
    ),
    Entry(
        "Data mix of the mixture phase",
        lambda e: _each(e, lambda data: _mix(e, data["mix"])),
        "stated",
        "BAM §5: 25% of each",
        stated="general 25%, code 25%, law 25%, math 25%",
    ),
    Entry(
        "Which documents share a sequence, after the seed model",
        lambda e: _each(e, _order),
        "ours",
        "BAM, BTX: not stated; Lory App. C: similar ones, the number of neighbours not stated",
    ),
)
