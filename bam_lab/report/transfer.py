"""Transfer at equal loss: the loss on text that no stage read, where all arms are as good inside.

A model that is better in its domains is better elsewhere too, so arms are compared at one loss in
the domains: the largest among those that the arms of a replicate end with. Where between two
validations an arm passes it, both losses are interpolated. Validation text is a small fixed slice.
"""

import math
from collections.abc import Iterator

from bam_lab.report.evidence import Curve, Evidence, MeasureCell
from bam_lab.spec.measures import MeasureName

MEASURE: MeasureName = "transfer_at_equal_loss"


def transfer_cells(view: Evidence) -> Iterator[MeasureCell]:
    """Yield one cell an arm and replicate; none where the recipe holds no domain out."""
    transfer = tuple(view.recipe.get("transfer", ()))
    arms = {arm.name for arm in view.arms}
    ends = {(c.replicate, c.arm): c for c in view.curves if c.name == "mixture" and c.arm in arms}
    for replicate in sorted({replicate for replicate, _ in ends if replicate is not None}):
        curves = {arm: _losses(c, view, transfer) for (r, arm), c in ends.items() if r == replicate}
        curves = {arm: points for arm, points in curves.items() if points}
        if not curves:
            continue
        level = max(points[-1][0] for points in curves.values())
        for arm, points in curves.items():
            yield MeasureCell(
                arm=arm or "",
                replicate=replicate,
                measure=MEASURE,
                value=at_level(points, level),
                runs=(ends[replicate, arm].key,),
            )


def _losses(
    curve: Curve, view: Evidence, transfer: tuple[str, ...]
) -> tuple[tuple[float, float], ...]:
    """Return (mean over domains, mean over `transfer`) at each validation that has them all."""
    return tuple(
        (_mean(losses, view.domains), _mean(losses, transfer))
        for _, losses in curve.valid
        if transfer and {*view.domains, *transfer} <= losses.keys()
    )


def _mean(losses: dict[str, float], domains: tuple[str, ...]) -> float:
    return math.fsum(losses[name] for name in domains) / len(domains)


def at_level(points: tuple[tuple[float, float], ...], level: float) -> float:
    """Return the second of each pair where the first falls to `level`, linear in between.

    A course that is below from its first point on gives that point's.
    """
    index = next(i for i, (inside, _) in enumerate(points) if inside <= level)
    if index == 0:
        return points[0][1]
    (high, before), (low, after) = points[index - 1], points[index]
    return before + (after - before) * (high - level) / (high - low)
