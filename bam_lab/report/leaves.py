"""The smallest tests behind a claim: one comparison on one domain, as three p values.

Each leaf says how likely its data are if the claim did not hold, if its opposite did not hold, and
if there were a difference. `partial` puts leaves together: "at least k of n" takes the k-th p with
its correction; its opposite is "at least n-k+1 of n the other way".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from bam_lab.report.scope import signed
from bam_lab.report.stats import (
    LEVEL,
    Difference,
    at_least,
    p_above,
    p_below,
    p_equivalent,
    p_lower,
    p_no_gain,
    percent,
    replicates_needed,
)

MORE = 10**9
"""Replicates needed: more than anybody runs."""

MOST_NATS = 20
"""A ratio beyond which a percentage says nothing (an interval of few noisy replicates)."""

Kind = Literal["better", "no_gain", "equal", "below", "above"]


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
        kind: `better` (first is lower by at least the margin), `no_gain` (it is not), `equal` (they
            differ by less), `below` and `above` (the difference lies on that side of the margin).
        difference: first minus second, in nats or in the measure's unit; None for an exact test.
        margin: where it is not the report's `delta`; the bound of `below` and `above`.
        linear: whether the difference is no logarithm, and is shown as it is, not in percent.
        unit: of a linear one.
        turned: whether more is better, so that the difference is second minus first; it is shown as
            first minus second.
        exact: for a test without error: whether it is as claimed.
        given: for a test of another kind: its p values.
        text: what is compared, where that is no difference.
    """

    label: str
    place: str
    kind: Kind
    difference: Difference | None = None
    margin: float | None = None
    linear: bool = False
    unit: str = ""
    turned: bool = False
    exact: bool | None = None
    given: Ps | None = None
    text: str = ""

    def agrees(self, delta: float) -> bool:
        """Return whether the size alone points with the claim."""
        if self.given is not None:
            return self.given.holds < self.given.contradicted
        if self.difference is None:
            return bool(self.exact)
        mean, margin = self.difference.mean, self._margin(delta)
        match self.kind:
            case "better":
                return -mean >= margin
            case "no_gain":
                return -mean < margin
            case "equal":
                return abs(mean) < margin
            case "below":
                return mean <= margin
            case "above":
                return mean >= margin
            case _:
                assert_never(self.kind)

    def ps(self, delta: float) -> Ps:
        """Return the leaf's p values; an effect below the margin neither holds nor contradicts."""
        if self.given is not None:
            return self.given
        if self.difference is None:
            return Ps(0.0, 1.0, 1.0) if self.exact else Ps(1.0, 0.0, 1.0)
        found, margin = self.difference, self._margin(delta)
        match self.kind:
            case "better":
                better = p_lower(found) if -found.mean >= margin else 1.0
                worse = p_above(found, 0.0) if found.mean >= margin else 1.0
                return Ps(better, worse, p_equivalent(found, margin))
            case "no_gain":
                better = p_lower(found) if -found.mean >= margin else 1.0
                return Ps(p_no_gain(found, margin), better, 1.0)
            case "equal":
                outside = min(p_above(found, margin), p_below(found, -margin))
                return Ps(p_equivalent(found, margin), outside, 1.0)
            case "below":
                return Ps(p_below(found, margin), p_above(found, margin), 1.0)
            case "above":
                return Ps(p_above(found, margin), p_below(found, margin), 1.0)
            case _:
                assert_never(self.kind)

    def needed(self, delta: float, level: float) -> int:
        """Return the replicates that would settle this comparison."""
        found, margin = self.difference, self._margin(delta)
        if found is None or not found.se:
            return 0
        if self.kind in ("below", "above"):
            found, margin = replace(found, mean=found.mean - margin), 0.0
        return replicates_needed(found, margin, level) or MORE

    def verdict(self, delta: float) -> str:
        """Return the leaf's own verdict, without correction for the other leaves and claims."""
        if self.difference is not None and not self.difference.judged:
            return "with the claim" if self.agrees(delta) else "not with the claim"
        return decide(self.ps(delta))

    def size(self) -> str:
        """Return the effect with its interval: in percent, as a factor, or in its own unit."""
        if self.difference is None:
            return self.text
        end = f" {self.unit}" if self.unit else ""
        sign = -1 if self.turned else 1
        mean = self._shown(sign * self.difference.mean)
        if not self.linear and not self._bounded:
            mean += "%"
        if not self.difference.se:  # one replicate, or exact
            return f"{mean}{end}{f' ({self.text})' if self.text else ''}"
        low, high = map(self._shown, sorted(sign * at for at in self.difference.interval()))
        return f"{mean} [{low}, {high}]{end}"

    @property
    def _bounded(self) -> bool:
        """Whether it is about a ratio and its bound, not about a change."""
        return self.kind in ("below", "above")

    def _shown(self, value: float) -> str:
        if self.linear:
            return signed(value, 3)
        if self._bounded:
            return f"{math.exp(value):.3f}" if value < MOST_NATS else "∞"
        return signed(percent(value), 2) if value < MOST_NATS else "+∞"

    def _margin(self, delta: float) -> float:
        return delta if self.margin is None else self.margin


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
