"""The gap between arms against the budget, and where arms cross.

A budget is a setting: a view with its own baseline. What is said of one holds for its length of
the mixture phase; a crossing is where the sign of the mean changes between neighbouring budgets,
along a straight line over the logarithm of the budget.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from bam_lab.report.blocks import AVERAGE, arm_blocks, effect, missing_reason, runs_of
from bam_lab.report.evidence import Evidence
from bam_lab.report.scope import number, signed
from bam_lab.report.settings import shown, views
from bam_lab.report.standing import unranked
from bam_lab.report.stats import Difference, block_contrast, percent
from bam_lab.report.table import Column, Row, Table, Value, hoist, missing
from bam_lab.report.tables import digits_of

BUDGET = "budget"


@dataclass(frozen=True)
class Budget:
    """Hold one budget.

    Attributes:
        times: the multiple of the scale's mixture-phase tokens.
        setting: its name.
        tokens: the baseline's in the mixture phase.
        view: the arms under it.
    """

    times: float
    setting: str
    tokens: int
    view: Evidence

    def arm(self, name: str) -> str:
        """Return an arm's name under this budget."""
        return f"{name}@{self.setting}"


@dataclass(frozen=True)
class Gap:
    """Hold one arm minus another under one budget; no difference where a number is missing."""

    budget: Budget
    difference: Difference | None


@dataclass(frozen=True)
class Crossing:
    """Hold where the sign of a gap changes.

    Attributes:
        before, after: the neighbouring budgets, as multiples.
        at: where the means cross.
        shown: whether intervals lie on one side of zero at some budget up to `before`, and on the
            other at one from `after` on.
    """

    before: float
    after: float
    at: float
    shown: bool


def budgets_of(evidence: Evidence) -> dict[str, tuple[Budget, ...]]:
    """Return the budgets, the smallest first, under each combination of other settings.

    Its name is empty where there are no others. Nothing for an ablation without budgets.
    """
    axes = {setting.name: setting.axes for setting in evidence.settings}
    found: dict[str, list[Budget]] = {}
    for setting, view in views(evidence):
        own = axes.get(setting, {})
        if BUDGET in own:
            tokens = int(view.arm(view.baseline).budget["tokens"])
            budget = Budget(float(own[BUDGET]), setting, tokens, view)
            found.setdefault(_others(own), []).append(budget)
    return {name: tuple(sorted(own, key=lambda b: b.times)) for name, own in found.items()}


def _others(axes: Mapping[str, Any]) -> str:
    return ", ".join(str(value) for axis, value in axes.items() if axis != BUDGET)


def gaps(budgets: Sequence[Budget], first: str, second: str, place: str) -> tuple[Gap, ...]:
    """Return arm `first` minus arm `second` on a domain or on `AVERAGE`, budget by budget."""
    return tuple(
        Gap(budget, effect(budget.view, budget.arm(first), budget.arm(second), place))
        for budget in budgets
    )


def crossings(course: Sequence[Gap]) -> tuple[Crossing, ...]:
    """Return every change of sign between neighbouring budgets."""
    known = [(gap.budget.times, gap.difference) for gap in course if gap.difference is not None]
    found = []
    for index, ((before, one), (after, other)) in enumerate(pairwise(known)):
        if one.mean * other.mean >= 0:
            continue
        share = one.mean / (one.mean - other.mean)
        at = before * (after / before) ** share
        side = math.copysign(1, one.mean)
        early = any(_beyond(difference, side) for _, difference in known[: index + 1])
        late = any(_beyond(difference, -side) for _, difference in known[index + 1 :])
        found.append(Crossing(before, after, at, early and late))
    return tuple(found)


def _beyond(difference: Difference, side: float) -> bool:
    """Return whether the interval lies on one side of zero."""
    return difference.judged and min(side * end for end in difference.interval()) > 0


def budgets_table(evidence: Evidence) -> Table | None:
    """Return the gap of every arm, budget by budget; None for an ablation without budgets."""
    found = budgets_of(evidence)
    if not found:
        return None
    rows = []
    for others, budgets in found.items():
        for arm in arms_of(evidence, budgets):
            for place in (AVERAGE, *evidence.domains):
                head = ", ".join(part for part in (arm, others, place) if part)
                rows.append(_row(evidence, budgets, head, arm, place))
    budgets = next(iter(found.values()))
    heads = [Column(f"{b.times:g}x ({number(b.tokens)})") for b in budgets]
    spread = "" if evidence.replicates == 1 else " with its 95% interval"
    return Table(
        label="budgets",
        title=f"Change against {evidence.baseline} after each budget, %",
        caption=(
            f"Change in test perplexity against {evidence.baseline}{spread}; below zero is better. "
            "A budget is a multiple of the scale's mixture-phase tokens (in brackets those of "
            f"{evidence.baseline}). An arm's budgets share one stable run, each with its own "
            "decay. Change: the last budget's gap less the first's. Crosses at: where the means "
            "change sign, by a straight line over the logarithm of the budget; in brackets "
            "where intervals do not show both signs."
        ),
        corner="arm",
        columns=(*heads, Column("change", align="right"), Column("crosses at", align="left")),
        rows=tuple(rows),
    )


def _row(evidence: Evidence, budgets: Sequence[Budget], head: str, arm: str, place: str) -> Row:
    course = gaps(budgets, arm, evidence.baseline, place)
    found = crossings(course)
    text = ", ".join(f"{c.at:.2g}x" if c.shown else f"({c.at:.2g}x)" for c in found)
    change = change_over(evidence, budgets, arm, evidence.baseline, place)
    return hoist(
        Row(
            head,
            (
                *(_gap_value(gap, arm, place) for gap in course),
                missing("a budget at the end is missing") if change is None else _value(change),
                Value(text or "no crossing", found[0].at if found else None, dim=not found),
            ),
        )
    )


def _gap_value(gap: Gap, arm: str, place: str) -> Value:
    view, name = gap.budget.view, gap.budget.arm(arm)
    places = view.domains if place == AVERAGE else (place,)
    if gap.difference is None:
        both = (missing_reason(view, who, places) for who in (name, view.baseline))
        return missing(next((reason for reason in both if reason), "not part of this run"))
    note = unranked(view, name)
    runs = runs_of(view, name, places)
    value = _value(gap.difference)
    return Value(value.text, value.number, dim=bool(note), note=note, runs=runs)


def _value(difference: Difference) -> Value:
    return Value(_text(difference), percent(difference.mean))


def _text(difference: Difference, unit: str = "") -> str:
    """Return a gap in percent with its interval."""
    mean = percent(difference.mean)
    if not difference.judged:
        return f"{signed(mean, 2)}{unit}"
    low, high = (percent(end) for end in difference.interval())
    digits = digits_of((high - low) / 2)
    return f"{signed(mean, digits)}{unit} [{signed(low, digits)}, {signed(high, digits)}]"


def change_over(
    evidence: Evidence, budgets: Sequence[Budget], first: str, second: str, place: str
) -> Difference | None:
    """Return the gap under the last budget minus that under the first, over the same replicates."""
    start, end = budgets[0], budgets[-1]
    weights = {
        end.arm(first): 1.0,
        end.arm(second): -1.0,
        start.arm(first): -1.0,
        start.arm(second): 1.0,
    }
    return block_contrast(arm_blocks(evidence, place), weights)


def arms_of(evidence: Evidence, budgets: Sequence[Budget]) -> tuple[str, ...]:
    """Return the arms but for the baseline, by the names that they share over the budgets."""
    names = (shown(arm.name) for budget in budgets for arm in budget.view.arms)
    return tuple(dict.fromkeys(name for name in names if name != evidence.baseline))


def budget_lines(evidence: Evidence) -> list[str]:
    """Return what the average says of every arm, and of every two that cross, one sentence each."""
    return [
        f"{under}: {line}" if under else line
        for under, budgets in budgets_of(evidence).items()
        for line in _lines(evidence, budgets)
    ]


def _lines(evidence: Evidence, budgets: Sequence[Budget]) -> Iterator[str]:
    arms = arms_of(evidence, budgets)
    for arm in arms:
        course = gaps(budgets, arm, evidence.baseline, AVERAGE)
        yield _line(evidence, course, arm, evidence.baseline, crossings(course))
    for first, second in combinations(arms, 2):
        course = gaps(budgets, first, second, AVERAGE)
        if found := crossings(course):
            yield _line(evidence, course, first, second, found)


def _line(
    evidence: Evidence, course: Sequence[Gap], arm: str, other: str, found: Sequence[Crossing]
) -> str:
    known = [gap for gap in course if gap.difference is not None]
    if not known:
        return f"{arm} against {other}: not measured"
    ends = " and ".join(
        f"{_text(gap.difference, '%')} at {gap.budget.times:g}x"
        for gap in (known[0], *known[1:][-1:])
        if gap.difference is not None
    )
    if not found:
        side = "better" if known[0].difference.mean < 0 else "worse"  # type: ignore[union-attr]
        where = f"{side} by the mean at every budget that is measured"
    else:
        where = "; ".join(_where(course, crossing) for crossing in found)
    judged = all(gap.difference.judged for gap in known if gap.difference)
    unjudged = "" if judged else " Not judged (1 replicate)."
    return f"{arm} against {other}: {ends}; {where}.{unjudged}"


def _where(course: Sequence[Gap], crossing: Crossing) -> str:
    tokens = {gap.budget.times: gap.budget.tokens for gap in course}
    near = crossing.at / crossing.before * tokens[crossing.before]
    sure = "shown" if crossing.shown else "which the intervals do not show"
    return (
        f"the means cross near {crossing.at:.2g}x ({number(near)} tokens), between "
        f"{crossing.before:g}x and {crossing.after:g}x, {sure}"
    )
