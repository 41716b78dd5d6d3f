"""The statistics against statsmodels and scipy, whose code they do not share."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats
from statsmodels.formula.api import ols
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import binom_test
from statsmodels.stats.weightstats import ttost_paired

from bam_lab.report import stats
from bam_lab.report.leaves import Leaf
from tests.report.test_stats import noisy_blocks

EFFECTS = {"a": -0.10, "b": 0.0, "c": 0.04, "d": -0.02}


def fitted(blocks):
    """Fit the arm + replicate model by statsmodels, an arm a column of its own."""
    frame = pd.DataFrame(
        [(arm, str(r), y) for (arm, r), y in blocks.items()], columns=["arm", "r", "y"]
    )
    return ols("y ~ 0 + C(arm) + C(r)", frame).fit()


@pytest.mark.parametrize("left_out", [(), (("c", 1),), (("a", 0), ("d", 3))])
@pytest.mark.parametrize(
    "weights",
    [
        {"a": 1.0, "b": -1.0},
        {"a": 1.0, "b": -1.0, "c": -1.0, "d": 1.0},
        {"a": 1.0, "b": -0.5, "c": -0.5},
    ],
)
def test_contrasts_are_those_of_the_linear_model(weights, left_out):
    blocks = noisy_blocks(EFFECTS, 5, 0.03)
    blocks = {key: value for key, value in blocks.items() if key not in left_out}
    model = fitted(blocks)
    row = np.array(
        [weights.get(name[7:8], 0.0) if "arm" in name else 0.0 for name in model.params.index]
    )
    expected = model.t_test(row)
    found = stats.block_contrast(blocks, weights)
    assert found.mean == pytest.approx(float(expected.effect[0]))
    assert found.se == pytest.approx(float(np.ravel(expected.sd)[0]))
    assert found.df == expected.df_denom
    low, high = np.ravel(expected.conf_int(0.05))
    assert found.interval() == pytest.approx((low, high))


@pytest.mark.parametrize("ps", [[0.01, 0.04, 0.03, 0.005], [0.2, 0.9, 0.02], [0.05], [0.01] * 5])
def test_holm(ps):
    assert stats.holm(ps) == pytest.approx(list(multipletests(ps, method="holm")[1]))


@pytest.mark.parametrize("gap", [0.0, 0.002, 0.006])
@pytest.mark.parametrize("margin", [0.005, 0.01])
def test_equivalence_is_the_two_one_sided_tests(gap, margin):
    blocks = noisy_blocks({"a": gap, "b": 0.0}, 8, 0.002)
    mine, theirs = (np.array([blocks[arm, r] for r in range(8)]) for arm in "ab")
    expected = ttost_paired(mine, theirs, -margin, margin)[0]
    found = stats.block_difference(blocks, "a", "b")
    assert stats.p_equivalent(found, margin) == pytest.approx(expected)
    leaf = Leaf("a against b", "x", "equal", found, margin)
    assert leaf.ps(0.1).holds == pytest.approx(expected)


@pytest.mark.parametrize("bound", [-0.05, 0.0, 0.02])
def test_bounds_are_one_sample_t_tests(bound):
    values = np.random.default_rng(1).normal(-0.02, 0.03, 7)
    found = stats.mean_of(list(values))
    two_sided = scipy_stats.ttest_1samp(values, bound).pvalue
    side = stats.p_below if values.mean() < bound else stats.p_above
    assert side(found, bound) == pytest.approx(two_sided)
    other = stats.p_above if side is stats.p_below else stats.p_below
    assert other(found, bound) == 1.0


def test_sums_of_independent_estimates_are_welchs():
    rng = np.random.default_rng(3)
    one, two = rng.normal(0.1, 0.02, 6), rng.normal(0.0, 0.05, 4)
    expected = scipy_stats.ttest_ind(one, two, equal_var=False)
    found = stats.summed([stats.mean_of(list(one)), stats.mean_of(list(-two))])
    assert found.mean == pytest.approx(one.mean() - two.mean())
    assert found.df == pytest.approx(expected.df)
    assert found.interval() == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_a_sum_with_one_replicate_in_a_part_has_no_error():
    whole = stats.mean_of([0.1, 0.2, 0.15])
    found = stats.summed([whole, stats.mean_of([0.3])])
    assert (found.mean, found.judged) == (pytest.approx(0.45), False)


@pytest.mark.parametrize(
    ("correct", "items", "chance"), [(40, 100, 0.25), (24, 100, 0.25), (9, 20, 0.5)]
)
@pytest.mark.parametrize(("side", "other"), [("greater", "larger"), ("less", "smaller")])
def test_chance_is_the_exact_binomial_test(correct, items, chance, side, other):
    expected = binom_test(correct, items, chance, alternative=other)
    assert stats.p_chance(correct, items, chance, side) == pytest.approx(expected)


def test_at_least_k_is_the_partial_conjunction():
    ps = [0.001, 0.2, 0.01, 0.03]
    assert stats.at_least(ps, 4) == 0.2
    assert stats.at_least(ps, 1) == pytest.approx(multipletests(ps, method="bonferroni")[1].min())
    assert stats.at_least(ps, 3) == pytest.approx(2 * 0.03)


def test_intervals_hold_what_they_say():
    """A 2x2 difference is inside its 95% interval about 95 times in a hundred."""
    effects, weights = (
        {"a": 0.0, "b": 0.1, "c": 0.3, "d": 0.2},
        {"a": 1.0, "b": -1.0, "c": -1.0, "d": 1.0},
    )
    truth = math.fsum(weight * effects[arm] for arm, weight in weights.items())
    inside = 0
    for rng_seed in range(400):
        found = stats.block_contrast(noisy_blocks(effects, 3, 0.05, rng_seed), weights)
        low, high = found.interval()
        inside += low <= truth <= high
    assert 0.92 < inside / 400 < 0.98
