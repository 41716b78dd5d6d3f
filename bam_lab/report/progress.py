"""What a gap does over training, and when an arm is where another ends: from validation losses.

Points are placed by the tokens of the mixture phase; between them losses are taken as straight
lines. Learning rates are what they are at that token: an arm in mid-schedule has not decayed yet.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from bam_lab.report.blocks import AVERAGE
from bam_lab.report.contrasts import NotMeasured
from bam_lab.report.evidence import Curve, Evidence
from bam_lab.report.stats import Difference, mean_of

Points = list[tuple[float, float]]

EARLY, LATE = (0.1, 0.4), (0.7, 1.0)
"""Shares of the tokens: the first and the last third of what is left after a tenth."""


def trend(evidence: Evidence, first: str, second: str, domain: str) -> Difference:
    """Estimate how much the gap `first` minus `second` changes from early to late, in nats.

    Raises:
        NotMeasured: an arm has no validation losses there.
    """
    changes = []
    for replicate in _shared(evidence, first, second):
        mine, theirs = (_points(evidence, arm, replicate, domain) for arm in (first, second))
        whole = min(mine[-1][0], theirs[-1][0])
        gaps = [(x / whole, y - _at(theirs, x)) for x, y in mine if theirs[0][0] <= x <= whole]
        early, late = (_mean(gaps, stretch) for stretch in (EARLY, LATE))
        changes.append(late - early)
    return mean_of(changes)


def reaches(
    evidence: Evidence, arm: str, target: str, domain: str, of: Literal["tokens", "flops"]
) -> Difference:
    """Estimate the logarithm of the share of `target`'s cost at which `arm` is at its final loss.

    An arm that never is there counts with all that it spent: it needs at least that.

    Raises:
        NotMeasured: an arm has no validation losses there.
    """
    shares = []
    for replicate in _shared(evidence, arm, target):
        mine, theirs = (_points(evidence, name, replicate, domain) for name in (arm, target))
        price = 1.0
        if of == "flops":
            mine_price, their_price = (_price(evidence, n, replicate) for n in (arm, target))
            price = mine_price / their_price
        shares.append(math.log(_first_at(mine, theirs[-1][1]) * price / theirs[-1][0]))
    return mean_of(shares)


def _curves(evidence: Evidence, arm: str) -> dict[int | None, list[Curve]]:
    """Return replicate -> the curves of its mixture phase, parts in their order."""
    found: dict[int | None, list[Curve]] = {}
    for curve in evidence.curves:
        if curve.name == "mixture" and curve.arm == arm:
            found.setdefault(curve.replicate, []).append(curve)
    return found


def _shared(evidence: Evidence, first: str, second: str) -> list[int | None]:
    mine, theirs = _curves(evidence, first), _curves(evidence, second)
    shared = [replicate for replicate in mine if replicate in theirs]
    if not shared:
        lacking = first if not mine else second
        raise NotMeasured(f"{lacking} has no finished mixture phase")
    return shared


def _points(evidence: Evidence, arm: str, replicate: int | None, domain: str) -> Points:
    """Return (tokens, validation loss), tokens rising."""
    domains = evidence.domains if domain == AVERAGE else (domain,)
    points: dict[float, float] = {}
    for curve in _curves(evidence, arm)[replicate]:
        end = max(points, default=0.0)
        # A part that continues a run counts its steps on; one under another method, from 0.
        anew = bool(curve.valid) and curve.valid[0][0] * curve.step_tokens <= end
        for step, losses in curve.valid:
            if all(name in losses for name in domains):
                mean = math.fsum(losses[name] for name in domains) / len(domains)
                points[step * curve.step_tokens + (end if anew else 0.0)] = mean
    if len(points) < 2:
        raise NotMeasured(f"{arm} has no validation losses over training on {domain}")
    return sorted(points.items())


def _price(evidence: Evidence, arm: str, replicate: int | None) -> float:
    """Return model FLOPs of one training token."""
    last = _curves(evidence, arm)[replicate][-1]
    return last.step_flops / last.step_tokens


def _at(points: Points, x: float) -> float:
    """Return the loss at `x`, between two points on their line."""
    for (left, low), (right, high) in pairwise(points):
        if left <= x <= right:
            return low + (high - low) * (x - left) / (right - left)
    return points[-1][1]


def _mean(gaps: Sequence[tuple[float, float]], stretch: tuple[float, float]) -> float:
    inside = [gap for x, gap in gaps if stretch[0] < x <= stretch[1] + 1e-9]
    if not inside:
        raise NotMeasured("too few validation losses over training to see a trend")
    return math.fsum(inside) / len(inside)


def _first_at(points: Points, loss: float) -> float:
    """Return where the loss is first at `loss` or below; the end where it never is."""
    if points[0][1] <= loss:
        return points[0][0]
    for (left, high), (right, low) in pairwise(points):
        if low <= loss:
            return left + (right - left) * (high - loss) / (high - low)
    return points[-1][0]
