"""What all figures share: their look, and how they become inline SVG, the same bytes every time.

Text stays text (`svg.fonttype: none`) and takes the page's colour, so that figures follow its light
and dark schemes. matplotlib is an extra: `available` says whether there can be figures.
"""

import importlib.util
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 6.75
"""Inches."""
# Okabe and Ito's palette, without yellow (too light on paper) and black (taken by the text).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
DASHES = ("-", "--", "-.", ":")
# A colour that stands for the page's own; replaced in the SVG.
INK = "#010203"
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bam-lab",
    "pdf.fonttype": 42,
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
}


def available() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


@contextmanager
def drawing(height: float) -> Iterator["Figure"]:
    """Open an empty figure of the page's width, `height` inches high, in the common look."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", _STYLE]):
        yield Figure(figsize=(WIDTH, height), layout="constrained")


def svg(figure: "Figure", name: str) -> str:
    """Return the figure as inline SVG; `name` keeps its ids apart from other figures'."""
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    return (
        text.replace('id="', f'id="{name}-')
        .replace("url(#", f"url(#{name}-")
        .replace('xlink:href="#', f'xlink:href="#{name}-')
    )
