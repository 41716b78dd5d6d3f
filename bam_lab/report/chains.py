"""The arms along an axis, in its order: what `monotone`, and a trend over budgets, compare."""

from collections.abc import Sequence
from typing import Any

from bam_lab.report.contrasts import OutOfScope
from bam_lab.report.evidence import Arm, Evidence
from bam_lab.report.settings import shown
from bam_lab.spec.claim_tests import Compared, MonotoneTest, TrendTest, quorum
from bam_lab.spec.claims import Claim

BUDGET, SETTING = "budget", "setting"


def chains_of(evidence: Evidence, claim: Claim, test: Compared) -> list[tuple[str, ...]]:
    """Return the arms along the test's axis, a chain for each value of all other axes.

    A trend over budgets has four arms a chain: both of its gap at the last and the first budget.

    Raises:
        OutOfScope: no arm has the axis, or it has one value only.
    """
    if isinstance(test, TrendTest):
        pairs = [_chains(evidence, claim, role, BUDGET, test.setting) for role in test.gap]
        return [(one[-1], two[-1], one[0], two[0]) for one, two in zip(*pairs, strict=True)]
    assert isinstance(test, MonotoneTest)
    return _chains(evidence, claim, test.arm, test.axis, test.setting)


def _chains(
    evidence: Evidence, claim: Claim, role: str, axis: str, setting: str
) -> list[tuple[str, ...]]:
    of_settings = axis == SETTING or any(axis in s.axes for s in evidence.settings)
    base, at, bound = role.partition("@")
    chosen = bound if at else "" if setting == "every" or quorum(setting) else setting
    groups: dict[tuple[Any, ...], list[Arm]] = {}
    for arm in _arms(evidence, claim.roles.get(base, (base,)), axis):
        if of_settings or chosen in ("", arm.setting):
            groups.setdefault(_rest(arm, axis, of_settings), []).append(arm)
    chains = [_sorted(arms, axis) for arms in groups.values()]
    if not any(len(chain) > 1 for chain in chains):
        raise OutOfScope(f"this ablation has no arm {role} with more than one {axis}")
    return [tuple(arm.name for arm in chain) for chain in chains if len(chain) > 1]


def _arms(evidence: Evidence, names: Sequence[str], axis: str) -> list[Arm]:
    """Return the arms of the first of some names that has the axis."""
    for name in names:
        found = [
            arm
            for arm in evidence.arms
            if name in ((arm.base or arm.name), shown(arm.name)) and _value(arm, axis) is not None
        ]
        if found:
            return found
    return []


def _value(arm: Arm, axis: str) -> Any:
    return arm.axes.get(axis, (arm.setting or None) if axis == SETTING else None)


def _rest(arm: Arm, axis: str, of_settings: bool) -> tuple[Any, ...]:
    """Return what tells an arm's chain from others: its setting, or all its other axes."""
    own = [(key, value) for key, value in arm.axes.items() if key not in (axis, SETTING)]
    return (*([] if of_settings else [arm.setting]), *own)


def _sorted(arms: list[Arm], axis: str) -> list[Arm]:
    """Sort arms by a numeric axis; others stay as the file writes them."""
    values = [_value(arm, axis) for arm in arms]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return sorted(arms, key=lambda arm: _value(arm, axis))
    return arms
