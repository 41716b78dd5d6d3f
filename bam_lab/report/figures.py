"""Figures as inline SVG: effects with intervals, and learning curves. Byte-identical when repeated.

Text stays text (`svg.fonttype: none`) and takes the page's colour, so that figures follow its light
and dark schemes. matplotlib is an extra: `available` says whether there can be figures.
"""

import importlib.util
import io
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bam_lab.report.blocks import AVERAGE, effect
from bam_lab.report.evidence import Curve, Evidence
from bam_lab.report.scope import number
from bam_lab.report.settings import shown
from bam_lab.report.stats import percent
from bam_lab.report.tables import arms_in_order, labelled
from bam_lab.spec.published import PublishedTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, without yellow (too light on paper) and black (taken by the text).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
DASHES = ("-", "--", "-.", ":")
# A colour that stands for the page's own; replaced in the SVG.
_INK = "#010203"
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bam-lab",
    "pdf.fonttype": 42,
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
}


def available() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def effects_figure(evidence: Evidence, published: PublishedTable | None) -> str:
    """Draw every arm's change against the baseline: ours with its interval, the paper's hollow.

    Empty where the baseline stands alone.
    """
    from matplotlib import style
    from matplotlib.figure import Figure

    places = [*evidence.domains, AVERAGE]
    arms = [arm for arm in arms_in_order(evidence) if arm != evidence.baseline]
    if not arms:
        return ""
    with style.context(["default", _STYLE]):
        figure = Figure(figsize=(6.75, 0.5 + 0.24 * len(arms) + 0.5), layout="constrained")
        axes = figure.subplots(1, len(places), sharey=True, squeeze=False)[0]
        for place, axis in zip(places, axes, strict=True):
            axis.axvline(0, color=_INK, linewidth=0.6)
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
        return _svg(figure, labelled("effects", evidence))


def curves_figure(evidence: Evidence) -> str:
    """Draw the mixture phase's losses against tokens and against model training FLOPs."""
    from matplotlib import style
    from matplotlib.figure import Figure

    arms = arms_in_order(evidence)
    validated = any(curve.valid for curve in evidence.curves if curve.name == "mixture")
    with style.context(["default", _STYLE]):
        figure = Figure(figsize=(6.75, 2.6), layout="constrained")
        tokens, flops = figure.subplots(1, 2, sharey=True)
        for position, arm in enumerate(arms):
            curves = [c for c in evidence.curves if c.name == "mixture" and c.arm == arm]
            look: Any = {
                "color": COLOURS[position % len(COLOURS)],
                "linestyle": DASHES[position // len(COLOURS) % len(DASHES)],
                "linewidth": 1.2,
            }
            ends: dict[int | None, tuple[float, float]] = {}  # of a replicate's part before
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
        tokens.set_xlabel("mixture-phase tokens")
        flops.set_xlabel("mixture-phase training FLOPs (model)")
        which = "validation" if validated else "training"
        tokens.set_ylabel(f"{which} loss, nats/token")
        tokens.set_ylim(*_losses_range(evidence, validated))
        for axis in (tokens, flops):
            axis.tick_params(length=2, width=0.6)
            axis.xaxis.set_major_formatter(lambda x, _: number(x).replace(".00", ""))
            axis.locator_params(axis="x", nbins=5)
        figure.legend(*tokens.get_legend_handles_labels(), loc="outside right center", fontsize=8)
        return _svg(figure, "curves")


def has_curves(evidence: Evidence) -> bool:
    """Return whether any mixture phase has logged a loss."""
    return any(c.name == "mixture" and (c.train or c.valid) for c in evidence.curves)


def _point(
    axis: Any,
    evidence: Evidence,
    published: PublishedTable | None,
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
    if published is None:
        return
    values = []
    for domain in evidence.domains if place == AVERAGE else (place,):
        names = (arm, evidence.baseline)
        mine, base = (published.value(n, evidence.match_on, domain, "perplexity") for n in names)
        if mine is None or base is None:
            return
        values.append(math.log(mine / base))
    hollow = {"markerfacecolor": "none", "markeredgecolor": COLOURS[3], "markersize": 4}
    axis.plot([percent(math.fsum(values) / len(values))], [row + 0.16], "D", **hollow)


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


def _svg(figure: "Figure", name: str) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Ids of one figure must not meet those of another on the same page.
    return (
        text.replace('id="', f'id="{name}-')
        .replace("url(#", f"url(#{name}-")
        .replace('xlink:href="#', f'xlink:href="#{name}-')
    )
