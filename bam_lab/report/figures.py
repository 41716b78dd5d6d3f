"""The figure of the effects: every arm's change against the baseline, with its interval."""

from typing import Any

from bam_lab.report.blocks import AVERAGE, effect
from bam_lab.report.drawing import COLOURS, INK, drawing, svg
from bam_lab.report.evidence import Evidence
from bam_lab.report.printed import printed_gap
from bam_lab.report.settings import shown
from bam_lab.report.stats import percent
from bam_lab.report.tables import arms_in_order, labelled
from bam_lab.spec.published import Tables


def effects_figure(evidence: Evidence, published: Tables) -> str:
    """Draw every arm's change against the baseline: ours with its interval, the paper's hollow.

    Empty where the baseline stands alone.
    """
    places = [*evidence.domains, AVERAGE]
    arms = [arm for arm in arms_in_order(evidence) if arm != evidence.baseline]
    if not arms:
        return ""
    with drawing(1.0 + 0.24 * len(arms)) as figure:
        axes = figure.subplots(1, len(places), sharey=True, squeeze=False)[0]
        for place, axis in zip(places, axes, strict=True):
            axis.axvline(0, color=INK, linewidth=0.6)
            for row, arm in enumerate(arms):
                _point(axis, evidence, published, arm, place, row)
            axis.set_title(place, fontsize=8)
            axis.set_yticks(range(len(arms)), [shown(arm) for arm in arms])
            axis.set_ylim(len(arms) - 0.5, -0.5)
            axis.tick_params(length=2, width=0.6)
            axis.margins(x=0.15)
        figure.supxlabel(
            f"change in test perplexity against {shown(evidence.baseline)}, %", fontsize=8
        )
        return svg(figure, labelled("effects", evidence))


def _point(
    axis: Any,
    evidence: Evidence,
    published: Tables,
    arm: str,
    place: str,
    row: int,
) -> None:
    found = effect(evidence, arm, evidence.baseline, place)
    if found is not None:
        if found.judged:
            low, high = (percent(end) for end in found.interval())
            axis.plot([low, high], [row - 0.12] * 2, color=COLOURS[0], linewidth=1.4)
        axis.plot([percent(found.mean)], [row - 0.12], "o", color=COLOURS[0], markersize=4)
    if not published:
        return
    printed = printed_gap(evidence, published, arm, place)
    if printed is None:
        return
    hollow = {"markerfacecolor": "none", "markeredgecolor": COLOURS[3], "markersize": 4}
    axis.plot([percent(printed.value)], [row + 0.16], "D", **hollow)
