"""The figure of the learning curves: losses against tokens and against FLOPs.

Many arms are drawn in rows of a few, the baseline in each, so that no line hides among thirty.
"""

import math
from collections.abc import Sequence
from typing import Any

from bam_lab.report.drawing import COLOURS, DASHES, INK, drawing, svg
from bam_lab.report.evidence import Curve, Evidence
from bam_lab.report.scope import number
from bam_lab.report.settings import views
from bam_lab.report.tables import arms_in_order

TOGETHER = 8
"""Arms that one row can hold; beyond them rows hold `FEW` and the baseline."""
FEW = 5


def curves_figure(evidence: Evidence) -> str:
    """Draw the mixture phase's losses against tokens and against model training FLOPs."""
    validated = any(curve.valid for curve in evidence.curves if curve.name == "mixture")
    rows = rows_of(evidence)
    with drawing(2.6 if len(rows) == 1 else 1.7 * len(rows) + 0.5) as figure:
        panels = figure.subplots(len(rows), 2, sharey=True, sharex="col", squeeze=False)
        for arms, (tokens, flops) in zip(rows, panels, strict=True):
            for position, arm in enumerate(arms):
                dense = len(rows) > 1 and position == 0
                _draw(evidence, arm, validated, (tokens, flops), _look(position, dense))
            tokens.set_ylabel(f"{'validation' if validated else 'training'} loss, nats/token")
            tokens.set_ylim(*_losses_range(evidence, validated))
            flops.legend(
                *tokens.get_legend_handles_labels(),
                loc="center left",
                bbox_to_anchor=(1.0, 0.5),
                fontsize=8,
            )
            for axis in (tokens, flops):
                axis.tick_params(length=2, width=0.6)
                axis.xaxis.set_major_formatter(lambda x, _: number(x).replace(".00", ""))
                axis.locator_params(axis="x", nbins=5)
        panels[-1][0].set_xlabel("mixture-phase tokens")
        panels[-1][1].set_xlabel("mixture-phase training FLOPs (model)")
        return svg(figure, "curves")


def rows_of(evidence: Evidence) -> list[list[str]]:
    """Return the arms that are drawn together: all, or a few of a setting with its baseline."""
    every = arms_in_order(evidence)
    if len(every) <= TOGETHER:
        return [every]
    rows = []
    for _, view in views(evidence):
        first, *others = arms_in_order(view)
        pieces = [others[start : start + FEW] for start in range(0, len(others), FEW)]
        rows += [[first, *piece] for piece in pieces or [[]]]
    return rows


def has_curves(evidence: Evidence) -> bool:
    """Return whether any mixture phase has logged a loss."""
    return any(c.name == "mixture" and (c.train or c.valid) for c in evidence.curves)


def _look(position: int, baseline: bool) -> dict[str, Any]:
    if baseline:
        return {"color": INK, "linestyle": "-", "linewidth": 0.9}
    return {
        "color": COLOURS[position % len(COLOURS)],
        "linestyle": DASHES[position // len(COLOURS) % len(DASHES)],
        "linewidth": 1.2,
    }


def _draw(
    evidence: Evidence, arm: str, validated: bool, axes: Sequence[Any], look: dict[str, Any]
) -> None:
    """Draw one line a replicate; the parts of a mixture phase one behind the other."""
    tokens, flops = axes
    curves = [c for c in evidence.curves if c.name == "mixture" and c.arm == arm]
    ends: dict[int | None, tuple[float, float]] = {}
    for index, curve in enumerate(curves):
        label = {"label": arm} if index == 0 else {}
        steps, losses = _points(curve, validated, evidence.domains)
        read, spent = ends.get(curve.replicate, (0.0, 0.0))
        seen = [read + s * curve.step_tokens for s in steps]
        work = [spent + s * curve.step_flops for s in steps]
        tokens.plot(seen, losses, **look, **label)
        flops.plot(work, losses, **look)
        if seen:
            ends[curve.replicate] = seen[-1], work[-1]


def _points(
    curve: Curve, validated: bool, domains: Sequence[str]
) -> tuple[Sequence[int], Sequence[float]]:
    if validated:
        rows = [(s, [x for d, x in losses.items() if d in domains]) for s, losses in curve.valid]
        return [s for s, _ in rows], [math.fsum(losses) / len(losses) for _, losses in rows]
    return [step for step, _ in curve.train], [loss for _, loss in curve.train]


def _losses_range(evidence: Evidence, validated: bool) -> tuple[float, float]:
    """Return the axis's ends; the first fifth of a curve, a steep fall, does not stretch it."""
    curves = [
        _points(c, validated, evidence.domains)[1] for c in evidence.curves if c.name == "mixture"
    ]
    late = [loss for losses in curves for loss in losses[min(len(losses) - 1, len(losses) // 5) :]]
    low, high = min(late), max(late)
    return low - 0.05 * (high - low), high + 0.05 * (high - low)
