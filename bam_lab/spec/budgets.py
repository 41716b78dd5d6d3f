"""Budgets: the same arms after mixture phases of several lengths, each a multiple of the scale's.

    budgets: [0.5, 1, 2, 4]

A budget is a setting. All run stable and then decay, so that an arm's budgets share one stable run
(`run/stretches.py`), as they could not along a cosine. Beside `settings`, each has every budget.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise, product

from bam_lab.spec.ablation import AblationSpec
from bam_lab.spec.axes import Point
from bam_lab.spec.data import DataSpec
from bam_lab.spec.experts import parts_of
from bam_lab.spec.messages import Loc, show
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.reader import Document
from bam_lab.spec.recipe import RecipeSpec, data_of
from bam_lab.spec.scale import ScaleSpec

BUDGETS, BUDGET = "budgets", "budget"
FEWEST_STEPS = 200
MOST = 1e6
"""The largest multiple; the arithmetic of longer phases would leave the numbers."""
_PHASE = "scale.phases.mixture"
_SCHEDULE, _TOKENS = f"{_PHASE}.schedule", f"{_PHASE}.tokens"


def with_budgets(
    document: Document, settings: tuple[Point, ...]
) -> tuple[tuple[Point, ...], list[str]]:
    """Return every setting under every budget (as they are without budgets), and problems."""
    raw = document.data.get(BUDGETS)
    if not isinstance(raw, list) or not all(_is_budget(budget) for budget in raw):
        return settings, []  # there are none, or validation says what is wrong
    problems = [*_raw_problems(document, raw)]
    for point in settings:
        for path in sorted({_SCHEDULE, _TOKENS} & point.changes.keys()):
            text = "must not be changed by a setting where there are budgets, which set it."
            problems.append(document.problem(point.places[path], f"{text} Remove one of the two."))
    at = document.data.get("at")
    for name, written in (at if isinstance(at, dict) else {}).items():
        if isinstance(written, dict) and _SCHEDULE in written:
            text = "must not be changed where there are budgets, which set it. Remove it."
            problems.append(document.problem(("at", name, _SCHEDULE), text))
    if problems:
        return settings, problems
    return tuple(_point(*pair) for pair in product(settings, enumerate(raw))), []


def _is_budget(raw: object) -> bool:
    number = isinstance(raw, int | float) and not isinstance(raw, bool)
    return number and 0 < raw < math.inf  # type: ignore[operator]


def _raw_problems(document: Document, raw: list[float]) -> Iterator[str]:
    names = [_name(budget) for budget in raw]
    for index, budget in enumerate(raw):
        if budget > MOST:
            text = f"must be at most {MOST:,.0f}, got {show(budget)}. Raise the scale's tokens."
            yield document.problem((BUDGETS, index), text)
        elif names[index] in names[:index] and budget not in raw[:index]:
            text = f"must differ from {names[index]} in six digits, got {show(budget)}. Round it."
            yield document.problem((BUDGETS, index), text)
    if any(after <= before for before, after in pairwise(raw)):
        text = f"must rise from the smallest to the largest, got {show(raw)}. Sort them."
        yield document.problem((BUDGETS,), text)
    if len(raw) < 2:
        text = f"must hold two budgets or more, got {len(raw)}. Set the scale's tokens instead."
        yield document.problem((BUDGETS,), text)


def _name(budget: float) -> str:
    return f"{budget:g}x"


def _point(setting: Point, place: tuple[int, float]) -> Point:
    index, budget = place
    name = _name(budget)
    return Point(
        name=f"{setting.name}-{name}" if setting.name else name,
        axes={**setting.axes, BUDGET: budget},
        changes={**setting.changes, _SCHEDULE: "stable_then_decay"},
        places={**setting.places, _SCHEDULE: (BUDGETS, index)},
    )


def place_of(point: Point) -> Loc:
    """Return where the file says a setting, or the last part of it that is a budget."""
    return point.places[_SCHEDULE] if BUDGET in point.axes else ("settings", point.name)


def sized(point: Point, scale: ScaleSpec) -> tuple[Point, ScaleSpec]:
    """Return a budget with its tokens, and the scale with them; both as they are without."""
    if BUDGET not in point.axes:
        return point, scale
    phase = scale.phases.mixture
    tokens = round(float(point.axes[BUDGET]) * phase.tokens)
    phases = scale.phases.model_copy(
        update={"mixture": phase.model_copy(update={"tokens": tokens})}
    )
    changed = replace(point, changes={**point.changes, _TOKENS: tokens})
    return changed, scale.model_copy(update={"phases": phases})


def budget_problems(
    document: Document,
    point: Point,
    spec: AblationSpec,
    scale: ScaleSpec,
    model: ModelSpec,
) -> Iterator[str]:
    """Check a budget's length, and that it is a budget of its own."""
    if BUDGET not in point.axes:
        return
    loc = point.places[_SCHEDULE]
    size = scale.phases.mixture
    if size.schedule == "cosine":  # by `--set`, which has the last word
        text = (
            "must not stand with `schedule: cosine`, under which no two lengths share a run. Leave"
        )
        yield document.problem(loc, f"{text} one of the two out.")
    steps = round(size.tokens / (size.batch_sequences * model.max_seq_len))
    if steps < FEWEST_STEPS and not scale.trial:
        yield document.problem(
            loc,
            f"must give the mixture phase {FEWEST_STEPS} steps or more, got {steps}: of fewer, "
            "hardly any are left between warm-up and decay. Take a larger budget or scale.",
        )
    if spec.match.across:
        text = (
            "must not be given with budgets: all would be matched to the first of them. Remove it."
        )
        yield document.problem(("match", "across"), text)


def sharing_problems(
    document: Document,
    point: Point,
    arms: Mapping[str, MethodSpec],
    data: Mapping[str, DataSpec],
    recipe: RecipeSpec,
) -> Iterator[str]:
    """Check that every arm's budgets can share a stable run."""
    if BUDGET not in point.axes:
        return
    for arm, method in arms.items():
        if len(parts_of(method)) > 1:
            text = "must not have a mixture phase of two parts where there are budgets: the second"
            text += " begins where the first ends, at another step under each. Take it out."
            yield document.problem(("arms", arm, "method"), text)
        if data_of(recipe, data.get(arm)).general_repeats is not None and parts_of(method):
            text = "must not say general_repeats where there are budgets: which text it reads would"
            text += " depend on its length. Take it out."
            yield document.problem(("arms", arm, "data"), text)
