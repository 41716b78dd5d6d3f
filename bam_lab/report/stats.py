"""Paired statistics over replicates, and the noise of a finite held-out set. Pure functions.

Arms are paired within a replicate: they share its branches, so a replicate is a block. With y the
mean negative log-likelihood,

    y[arm, replicate] = arm effect + block effect + residual,

and the residual, with (R-1)(A-1) degrees of freedom when no cell is missing, is the error of every
difference between two arms. Differences are in nats a token; `percent` turns one into a change in
perplexity.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

LEVEL = 0.05
POWER = 0.8
MOST_REPLICATES = 1000

Floats = NDArray[np.float64]
Blocks = Mapping[tuple[str, int], float]


@dataclass(frozen=True)
class Difference:
    """Hold an estimated difference between two arms, first minus second, or a like contrast.

    Attributes:
        mean: in nats a token, or in the measure's unit or its logarithm.
        se: standard error of `mean`; None with one replicate, 0 of what is exact.
        df: residual degrees of freedom, a fraction where variances are added up; 0 with one
            replicate.
        replicates: blocks that hold both arms.
        arms: arms in the analysis, which decides the degrees of freedom.
    """

    mean: float
    se: float | None
    df: float
    replicates: int
    arms: int

    @property
    def judged(self) -> bool:
        """Return whether there is an error to judge by."""
        return self.se is not None

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the two-sided t interval of confidence 1 - `level`."""
        assert self.se is not None
        half = float(stats.t.ppf(1 - level / 2, self.df)) * self.se
        return self.mean - half, self.mean + half

    def tail(self, at: float, side: str) -> float:
        """Return P(T beyond the data) for H0 "difference = `at`": `below` or `above` it."""
        assert self.se is not None
        distance = self.mean - at
        if self.se == 0:
            return 0.5 if distance == 0 else float((distance > 0) == (side == "below"))
        p = float(stats.t.cdf(distance / self.se, self.df))
        return p if side == "below" else 1 - p


def percent(nats: float) -> float:
    """Return the relative change in perplexity, in percent, of a difference in nats."""
    return 100 * math.expm1(nats)


def block_difference(blocks: Blocks, first: str, second: str) -> Difference | None:
    """Estimate `first` minus `second`; see `block_contrast`."""
    weights = {first: 1.0, second: -1.0} if first != second else {first: 0.0}
    return block_contrast(blocks, weights)


def block_contrast(blocks: Blocks, weights: Mapping[str, float]) -> Difference | None:
    """Estimate a weighted sum of arms, weights adding up to 0, from the arm + replicate model.

    Least squares, so missing cells are allowed; with none missing this is the textbook
    randomised-block analysis. Arms that never share a replicate with others cost nothing.

    Args:
        blocks: (arm, replicate) to a value; missing cells are absent.
        weights: arm to its weight: 1 and -1 for a difference.

    Returns:
        None when no replicate holds all of these arms.
    """
    assert abs(math.fsum(weights.values())) < 1e-9
    arms = sorted({arm for arm, _ in blocks})
    replicates = sorted({replicate for _, replicate in blocks})
    shared = [r for r in replicates if all((arm, r) in blocks for arm in weights)]
    if not shared:
        return None
    if len(replicates) == 1:
        mean = math.fsum(weight * blocks[arm, shared[0]] for arm, weight in weights.items())
        return Difference(mean, None, 0, 1, len(arms))
    keys = sorted(blocks)
    values = np.array([blocks[key] for key in keys])
    design = np.zeros((len(keys), len(arms) + len(replicates)))
    for row, (arm, replicate) in enumerate(keys):
        design[row, arms.index(arm)] = 1
        design[row, len(arms) + replicates.index(replicate)] = 1
    contrast = np.zeros(design.shape[1])
    for arm, weight in weights.items():
        contrast[arms.index(arm)] = weight
    inverse = np.linalg.pinv(design.T @ design)
    fitted = inverse @ design.T @ values
    df = len(keys) - int(np.linalg.matrix_rank(design))
    mean = float(contrast @ fitted)
    if df == 0:
        return Difference(mean, None, 0, len(shared), len(arms))
    residual = values - design @ fitted
    variance = float(residual @ residual) / df * float(contrast @ inverse @ contrast)
    return Difference(mean, math.sqrt(max(variance, 0.0)), df, len(shared), len(arms))


def summed(parts: Sequence[Difference]) -> Difference:
    """Add independent estimates up; the degrees of freedom are Welch and Satterthwaite's."""
    mean = math.fsum(part.mean for part in parts)
    replicates = min(part.replicates for part in parts)
    arms = max(part.arms for part in parts)
    variances = [part.se**2 for part in parts if part.se is not None]
    if len(variances) < len(parts):
        return Difference(mean, None, 0, replicates, arms)
    total = math.fsum(variances)
    spread = math.fsum(v**2 / part.df for v, part in zip(variances, parts, strict=True))
    df = total**2 / spread if spread else float(sum(part.df for part in parts))
    return Difference(mean, math.sqrt(total), df, replicates, arms)


def mean_of(values: Sequence[float]) -> Difference:
    """Estimate the mean of one number a replicate: the one-sample t analysis."""
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Difference(mean, None, 0, 1, 2)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return Difference(mean, math.sqrt(variance / len(values)), len(values) - 1, len(values), 2)


def holm(ps: Sequence[float]) -> list[float]:
    """Return Holm's step-down adjusted p values, in the order given."""
    adjusted = [1.0] * len(ps)
    running = 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        running = max(running, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = running
    return adjusted


def at_least(ps: Sequence[float], k: int) -> float:
    """Return the p value of "at least `k` of these alternatives are true".

    The partial-conjunction test with Bonferroni's bound: (n - k + 1) times the k-th smallest p. For
    k = n it is the largest p (intersection-union), for k = 1 Bonferroni's n times the smallest.
    """
    assert 1 <= k <= len(ps)
    return min(1.0, (len(ps) - k + 1) * sorted(ps)[k - 1])


def p_lower(difference: Difference) -> float:
    """Return the two-sided p for "first is lower than second", 1 when it points the other way.

    Below `LEVEL` exactly when the 1 - LEVEL interval lies below zero.
    """
    return min(1.0, 2 * difference.tail(0.0, "below"))


def p_no_gain(difference: Difference, delta: float) -> float:
    """Return the p for "first is not lower than second by `delta` or more" (nats, delta > 0).

    Below `LEVEL` exactly when the upper end of the gain, -difference, lies below `delta`.
    """
    return min(1.0, 2 * difference.tail(-delta, "above"))


def p_equivalent(difference: Difference, delta: float) -> float:
    """Return the p of two one-sided tests for |difference| < `delta`.

    Below `LEVEL` exactly when the 1 - 2 LEVEL interval lies inside ±delta.
    """
    return max(difference.tail(delta, "below"), difference.tail(-delta, "above"))


def p_below(difference: Difference, bound: float) -> float:
    """Return the two-sided p for "the difference lies below `bound`"."""
    return min(1.0, 2 * difference.tail(bound, "below"))


def p_above(difference: Difference, bound: float) -> float:
    """Return the two-sided p for "the difference lies above `bound`"."""
    return min(1.0, 2 * difference.tail(bound, "above"))


def p_chance(correct: int, items: int, chance: float, side: str = "greater") -> float:
    """Return the exact binomial p for "more (`less`) answers are right than guessing gives"."""
    return float(stats.binomtest(correct, items, chance, alternative=side).pvalue)


def replicates_needed(difference: Difference, delta: float, level: float = LEVEL) -> int | None:
    """Return how many replicates would settle this comparison with power 0.8, or None.

    Taken as if the measured effect and residual were the true ones: an effect of at least `delta`
    has to leave zero outside its interval, a smaller one has to fit inside ±delta. None means more
    than `MOST_REPLICATES`.
    """
    assert difference.se is not None
    deviation = difference.se * math.sqrt(difference.replicates / 2)
    effect = abs(difference.mean)
    if effect >= delta:
        room, tail, power = effect, level / 2, POWER
    else:
        room, tail, power = delta - effect, level, 1 - (1 - POWER) / 2
    for count in range(2, MOST_REPLICATES + 1):
        df = (count - 1) * (difference.arms - 1)
        reach = float(stats.t.ppf(1 - tail, df) + stats.t.ppf(power, df))
        if reach * deviation * math.sqrt(2 / count) <= room:
            return count
    return None


def cluster_bootstrap(
    numerator: Floats,
    denominator: Floats,
    clusters: Sequence[str],
    *,
    draws: int = 1000,
    rng_seed: int = 0,
) -> float:
    """Return the standard error of sum(numerator) / sum(denominator) over held-out documents.

    Sources are drawn with replacement, then documents within each drawn source; with one source
    only the documents are. This is the noise of the evaluation set, not of training.
    """
    rng = np.random.default_rng(rng_seed)
    labels = np.array(clusters)
    members = [np.flatnonzero(labels == name) for name in sorted(set(clusters))]
    equal = np.full(len(members), 1 / len(members))
    times = rng.multinomial(len(members), equal, size=draws)  # how often each source is drawn
    weights = np.zeros((draws, len(labels)))
    for column, own in enumerate(members):
        picks = times[:, column] * len(own)
        weights[:, own] = rng.multinomial(picks, np.full(len(own), 1 / len(own)))
    return float((weights @ numerator / (weights @ denominator)).std(ddof=1))
