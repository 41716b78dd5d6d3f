"""The figure of an axis: the change against the baseline, and perplexity, along its values.

The interval of a perplexity is that of its difference from the baseline: what blocks share says
nothing about which arm is better.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from bam_lab.report.axes import Line, Point, axes_of, lines_of, mean_of
from bam_lab.report.blocks import AVERAGE
from bam_lab.report.drawing import COLOURS, DASHES, INK, drawing, svg
from bam_lab.report.evidence import Evidence
from bam_lab.report.scope import number
from bam_lab.report.stats import percent

WIDE = 8.0
"""Ratio of an axis's ends beyond which it is drawn on a logarithmic scale."""
LEGEND_COLUMNS = 4


def axis_figures(evidence: Evidence) -> dict[str, str]:
    """Return axis -> its figure, of the axes along which anything was measured."""
    drawn = {axis: _figure(evidence, axis, values) for axis, values in axes_of(evidence).items()}
    return {axis: figure for axis, figure in drawn.items() if figure}


def _figure(evidence: Evidence, axis: str, values: Sequence[Any]) -> str:
    places = [*evidence.domains, AVERAGE]
    lines = {place: lines_of(evidence, axis, place) for place in places}
    measured = [p for line in lines[AVERAGE] for p in line.points if p.nll is not None]
    if len({str(point.value) for point in measured}) < 2:
        return ""
    positions = _positions(values)
    names = len(lines[AVERAGE])
    with drawing(3.4 + 0.16 * math.ceil(names / LEGEND_COLUMNS)) as figure:
        panels = figure.subplots(2, len(places), sharex=True, squeeze=False)
        for place, changes, perplexities in zip(places, *panels, strict=True):
            changes.axhline(0, color=INK, linewidth=0.6)
            for position, line in enumerate(lines[place]):
                _draw(changes, perplexities, line, positions, _look(line, position))
            if not any(line.baseline for line in lines[place]) and not evidence.settings:
                _level(perplexities, evidence, place)
            changes.set_title(place, fontsize=8)
            for panel in (changes, perplexities):
                _scale(panel, positions, values)
        panels[0][0].set_ylabel("change, %")
        panels[1][0].set_ylabel("perplexity")
        figure.supxlabel(axis, fontsize=8)
        handles, labels = panels[1][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=LEGEND_COLUMNS, fontsize=8)
        return svg(figure, f"axis-{axis}")


def _positions(values: Sequence[Any]) -> dict[str, float]:
    """Return where each value stands: at itself, or in the file's order where one is no number."""
    if _numeric(values):
        return {str(value): float(value) for value in values}
    return {str(value): float(index) for index, value in enumerate(values)}


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _scale(panel: Any, positions: dict[str, float], values: Sequence[Any]) -> None:
    ends = min(positions.values()), max(positions.values())
    if _numeric(values) and ends[0] > 0 and ends[1] / ends[0] >= WIDE:
        panel.set_xscale("log")
        panel.minorticks_off()
    ticks = sorted(positions.items(), key=lambda item: item[1])
    shown = ticks if len(ticks) <= 6 else [*ticks[:-1:2], ticks[-1]]
    long = max(len(_label(text)) for text, _ in shown) > 4
    panel.set_xticks(
        [at for _, at in shown],
        [_label(text) for text, _ in shown],
        rotation=45 if long else 0,
        ha="right" if long else "center",
    )
    panel.tick_params(length=2, width=0.6, labelsize=7)
    panel.margins(x=0.1, y=0.15)


def _label(text: str) -> str:
    try:
        value = float(text)
    except ValueError:
        return text
    return re.sub(r"\.0+(?=\D|$)", "", number(value)) if abs(value) >= 1000 else text


def _look(line: Line, position: int) -> dict[str, Any]:
    if line.baseline:
        return {"color": INK, "linestyle": "-"}
    return {
        "color": COLOURS[position % len(COLOURS)],
        "linestyle": DASHES[position // len(COLOURS) % len(DASHES)],
    }


def _draw(
    changes: Any, perplexities: Any, line: Line, positions: dict[str, float], look: dict[str, Any]
) -> None:
    points = sorted(line.points, key=lambda point: positions[str(point.value)])
    known = [p for p in points if p.nll is not None]
    at = [positions[str(p.value)] for p in known]
    style = {**look, "linewidth": 1.1, "marker": "o", "markersize": 2.5}
    perplexities.plot(at, [math.exp(p.nll or 0.0) for p in known], label=line.name, **style)
    if line.baseline:
        return
    compared = [p for p in points if p.gap is not None]
    changes.plot(
        [positions[str(p.value)] for p in compared], [_change(p) for p in compared], **style
    )
    for point in compared:
        _interval(changes, perplexities, point, positions[str(point.value)], look["color"])


def _change(point: Point) -> float:
    assert point.gap is not None
    return percent(point.gap.mean)


def _interval(changes: Any, perplexities: Any, point: Point, at: float, colour: str) -> None:
    if point.gap is None or point.nll is None or not point.gap.judged:
        return
    ends = point.gap.interval()
    changes.plot([at, at], [percent(end) for end in ends], color=colour, linewidth=0.8)
    shifted = [math.exp(point.nll + end - point.gap.mean) for end in ends]
    perplexities.plot([at, at], shifted, color=colour, linewidth=0.8)


def _level(panel: Any, evidence: Evidence, place: str) -> None:
    """Draw the baseline that stands at no value of the axis."""
    level = mean_of(evidence, evidence.baseline, place)
    if level is not None:
        look = {"color": INK, "linewidth": 0.8, "linestyle": ":"}
        panel.axhline(math.exp(level), label=evidence.baseline, **look)
