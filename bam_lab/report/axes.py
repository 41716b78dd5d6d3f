"""The arms along an axis: which arms make one line, and what stands at each of its points.

An axis is one of the arms' own (`over:`) or one of the settings'. A line joins arms that differ in
that axis alone. What was changed one at a time (`case`) is no axis to draw a line along.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bam_lab.report.blocks import arm_blocks, effect
from bam_lab.report.evidence import Arm, Evidence
from bam_lab.report.settings import views
from bam_lab.report.stats import Difference

CASE = "case"


@dataclass(frozen=True)
class Point:
    """Hold one arm on one line.

    Attributes:
        value: where it stands on the axis, as the file writes it.
        gap: its difference from the baseline of its setting in nats; None for a missing number,
            and for the baseline itself.
        nll: its mean negative log-likelihood: the baseline's and the gap, since the replicates
            that an arm has may be others than the baseline's; None where it is missing.
    """

    arm: str
    value: Any
    gap: Difference | None
    nll: float | None


@dataclass(frozen=True)
class Line:
    """Hold the arms that differ in one axis alone, in the order of the file.

    Attributes:
        name: what the arms have in common: their name in the file and their other axes' values.
        baseline: whether these are the baselines of their settings.
    """

    name: str
    baseline: bool
    points: tuple[Point, ...]


def axes_of(evidence: Evidence) -> dict[str, tuple[Any, ...]]:
    """Return axis -> its values in the order of the file, of the axes that have several."""
    found: dict[str, list[Any]] = {}
    for arm in evidence.arms:
        for axis, value in arm.axes.items():
            values = found.setdefault(axis, [])
            if value not in values:
                values.append(value)
    return {axis: tuple(v) for axis, v in found.items() if axis != CASE and len(v) > 1}


def lines_of(evidence: Evidence, axis: str, place: str) -> tuple[Line, ...]:
    """Return the lines along an axis, their numbers those of a domain or of `AVERAGE`."""
    found: dict[tuple[str, ...], list[Point]] = {}
    baselines: set[tuple[str, ...]] = set()
    for _, view in views(evidence):
        level = mean_of(view, view.baseline, place)
        for arm in view.arms:
            if axis not in arm.axes:
                continue
            key = _common(arm, axis)
            is_baseline = arm.name == view.baseline
            gap = None if is_baseline else effect(view, arm.name, view.baseline, place)
            nll = level
            if not is_baseline:
                nll = level + gap.mean if level is not None and gap is not None else None
            point = Point(arm.name, arm.axes[axis], gap, nll)
            found.setdefault(key, []).append(point)
            if is_baseline:
                baselines.add(key)
    return tuple(
        Line(", ".join(key), key in baselines, tuple(points))
        for key, points in found.items()
        if len(points) > 1
    )


def _common(arm: Arm, axis: str) -> tuple[str, ...]:
    others = {name: value for name, value in arm.axes.items() if name != axis}
    return (arm.base or arm.name, *_named(others))


def _named(axes: Mapping[str, Any]) -> Iterator[str]:
    for name, value in axes.items():
        yield f"{name.rpartition('.')[2]} {value}"


def mean_of(evidence: Evidence, arm: str, place: str) -> float | None:
    """Return the mean over an arm's replicates; None where it has none."""
    own = [nll for (name, _), nll in arm_blocks(evidence, place).items() if name == arm]
    return math.fsum(own) / len(own) if own else None
