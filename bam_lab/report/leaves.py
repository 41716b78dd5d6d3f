"""The smallest tests behind a claim: one comparison on one domain, as three p values.

Each leaf says how likely its data are if the claim did not hold, if its opposite did not hold, and
if there were a difference. `partial` puts leaves together: "at least k of n" takes the k-th p with
its correction; its opposite is "at least n-k+1 of n the other way".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bam_lab.report.scope import signed
from bam_lab.report.stats import (
    LEVEL,
    Difference,
    at_least,
    p_equivalent,
    p_lower,
    p_no_gain,
    percent,
    replicates_needed,
)

MORE = 10**9
"""Replicates needed: more than anybody runs."""


@dataclass(frozen=True)
class Ps:
    """Hold the p values of the three things that can be shown."""

    holds: float
    contradicted: float
    no_difference: float


@dataclass(frozen=True)
class Leaf:
    """Hold one comparison.

    Attributes:
        place: the domain, or what else tells this comparison from its neighbours.
        kind: `better` (first is lower by at least delta) or `no_gain` (it is not).
        difference: first minus second in nats; None for an exact test.
        exact: for a test without error: what is compared, and whether it is as claimed.
    """

    label: str
    place: str
    kind: Literal["better", "no_gain"]
    difference: Difference | None = None
    exact: bool | None = None
    text: str = ""

    def agrees(self, delta: float) -> bool:
        """Return whether the size alone points with the claim."""
        if self.exact is not None or self.difference is None:
            return bool(self.exact)
        gain = -self.difference.mean
        return gain >= delta if self.kind == "better" else gain < delta

    def ps(self, delta: float) -> Ps:
        """Return the leaf's p values; an effect below `delta` neither holds nor contradicts."""
        if self.exact is not None or self.difference is None:
            return Ps(0.0, 1.0, 1.0) if self.exact else Ps(1.0, 0.0, 1.0)
        gain = -self.difference.mean
        better = p_lower(self.difference) if gain >= delta else 1.0
        if self.kind == "no_gain":
            return Ps(p_no_gain(self.difference, delta), better, 1.0)
        other = Difference(gain, *_rest(self.difference))
        worse = p_lower(other) if -gain >= delta else 1.0
        return Ps(better, worse, p_equivalent(self.difference, delta))

    def needed(self, delta: float, level: float) -> int:
        """Return the replicates that would settle this comparison."""
        if self.difference is None:
            return 0
        return replicates_needed(self.difference, delta, level) or MORE

    def verdict(self, delta: float) -> str:
        """Return the leaf's own verdict, without correction for the other leaves and claims."""
        if self.difference is not None and not self.difference.judged:
            return "with the claim" if self.agrees(delta) else "not with the claim"
        return decide(self.ps(delta))

    def size(self) -> str:
        """Return the effect with its interval, in percent of perplexity."""
        if self.difference is None:
            return self.text
        mean = f"{signed(percent(self.difference.mean), 2)}%"
        if not self.difference.judged:
            return mean
        low, high = (percent(end) for end in self.difference.interval())
        return f"{mean} [{signed(low, 2)}, {signed(high, 2)}]"


def _rest(difference: Difference) -> tuple[float | None, int, int, int]:
    return difference.se, difference.df, difference.replicates, difference.arms


def decide(ps: Ps) -> str:
    """Turn (adjusted) p values into a verdict."""
    if ps.holds < LEVEL:
        return "holds"
    if ps.contradicted < LEVEL:
        return "contradicted"
    return "no difference" if ps.no_difference < LEVEL else "inconclusive"


def partial(parts: Sequence[Ps], k: int) -> Ps:
    """Put n parts together as "at least `k` of them"."""
    other = len(parts) - k + 1
    return Ps(
        at_least([p.holds for p in parts], k),
        at_least([p.contradicted for p in parts], other),
        at_least([p.no_difference for p in parts], other),
    )


def nats(delta: float) -> float:
    """Return the margin in nats: the two sides of ±delta are taken as equal in nats."""
    return math.log1p(delta)
