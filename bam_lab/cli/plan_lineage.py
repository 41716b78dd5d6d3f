"""What every arm of a plan takes from the seed model on: summed, and along its longest way.

Branches train apart from one another, so that the time until an arm is trained is that of the
longest way through its stages, not their sum (arXiv:2403.07816 §3).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

from bam_lab.cli.output import amount, duration, size, table

if TYPE_CHECKING:
    from bam_lab.cli.planning import Plan, StageRow


@dataclass(frozen=True)
class Lineage:
    """Hold one arm's training, of its first replicate.

    Attributes:
        training_flops: model FLOPs of seed model, branches and mixture phase.
        branch_active_tokens: activated parameters times tokens of its branches.
        mixture_active_tokens: the same of its mixture phase.
        bytes_communicated: what 8 devices would send, seed model included.
        device_seconds: of all stages together, seconds times cores.
        critical_seconds: from the trained seed model to the trained arm, branches side by side.
    """

    arm: str
    training_flops: int
    branch_active_tokens: int
    mixture_active_tokens: int
    bytes_communicated: int
    device_seconds: float
    critical_seconds: float


def lineages(plan: "Plan") -> tuple[Lineage, ...]:
    """Return every arm's; one that is not trained has its branches alone."""
    by_key = {row.key: row for row in plan.stages}
    ends: dict[str, list[StageRow]] = {}
    for row in plan.stages:
        if row.arm and row.name in ("upcycle", "mixture"):
            ends.setdefault(row.arm, []).append(row)
    found = []
    for arm, rows in ends.items():
        first = [row for row in rows if row.replicate == rows[0].replicate]
        way = _way(by_key, first)
        found.append(_lineage(arm, way))
    return tuple(found)


def _lineage(arm: str, way: Sequence["StageRow"]) -> Lineage:
    trained = [row for row in way if row.steps]
    after = {row.key: row.seconds for row in trained if row.name != "seed_model"}
    return Lineage(
        arm=arm,
        training_flops=sum(row.training_flops for row in trained),
        branch_active_tokens=_active_tokens(trained, "expert"),
        mixture_active_tokens=_active_tokens(trained, "mixture"),
        bytes_communicated=sum(row.bytes_communicated for row in trained),
        device_seconds=sum(row.seconds * row.threads for row in trained),
        critical_seconds=max(longest(way, after).values(), default=0.0),
    )


def _active_tokens(rows: Sequence["StageRow"], name: str) -> int:
    return sum(row.params_active * row.tokens for row in rows if row.name == name)


def longest(rows: Sequence["StageRow"], seconds: Mapping[str, float]) -> dict[str, float]:
    """Return when each stage ends if it starts as soon as its inputs are there.

    Args:
        rows: inputs first.
        seconds: what each takes, in any unit; nothing where it is not given.
    """
    ends: dict[str, float] = {}
    for row in rows:
        start = max((ends[key] for key in row.needs), default=0.0)
        ends[row.key] = start + seconds.get(row.key, 0.0)
    return ends


def _way(by_key: Mapping[str, "StageRow"], last: Sequence["StageRow"]) -> list["StageRow"]:
    """Return some stages and all that they need, inputs first."""
    found: dict[str, StageRow] = {}

    def visit(row: "StageRow") -> None:
        if row.key not in found:
            for key in row.needs:
                visit(by_key[key])
            found[row.key] = row

    for row in last:
        visit(row)
    return list(found.values())


def as_json(plan: "Plan") -> dict[str, Any]:
    """Return it as plain data, arm by arm."""
    return {found.arm: asdict(found) for found in lineages(plan)}


LEGEND = (
    "One replicate, seed model included. branches, mixture: activated parameters times training "
    "tokens of either; sent: what 8 devices would send, experts in "
    "groups; core time: all stages; path: from the trained seed model on, branches side by side."
)


def shown(plan: "Plan") -> Table:
    """Return the table for people."""
    made = table("arm", ">FLOPs", ">branches", ">mixture", ">sent", ">core time", ">path")
    for found in lineages(plan):
        made.add_row(
            found.arm,
            amount(found.training_flops),
            amount(found.branch_active_tokens),
            amount(found.mixture_active_tokens),
            size(found.bytes_communicated),
            duration(found.device_seconds),
            duration(found.critical_seconds),
        )
    return made
