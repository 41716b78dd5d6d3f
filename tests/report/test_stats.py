"""The statistics on constructed data with known answers, and against textbook formulas."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from bam_lab.report import stats


def noisy_blocks(arms: dict[str, float], replicates: int, sd: float, rng_seed: int = 0):
    """Make cells with large block effects and residuals of deviation `sd`."""
    rng = np.random.default_rng(rng_seed)
    block = rng.normal(0, 1.0, replicates)
    return {
        (arm, r): 3 + effect + block[r] + rng.normal(0, sd)
        for arm, effect in arms.items()
        for r in range(replicates)
    }


def test_two_arms_equal_the_paired_t_test():
    blocks = noisy_blocks({"a": -0.1, "b": 0.0}, 6, 0.05)
    found = stats.block_difference(blocks, "a", "b")
    pairs = np.array([blocks["a", r] - blocks["b", r] for r in range(6)])
    expected = scipy_stats.ttest_1samp(pairs, 0.0)
    assert found.df == 5
    assert found.mean == pytest.approx(pairs.mean())
    assert found.se == pytest.approx(pairs.std(ddof=1) / math.sqrt(6))
    assert found.interval() == pytest.approx(tuple(expected.confidence_interval(0.95)))
    two_sided = expected.pvalue
    assert stats.p_lower(found) == pytest.approx(two_sided if pairs.mean() < 0 else 1)


def test_error_is_the_residual_of_the_block_analysis():
    arms, replicates = {"a": 0.0, "b": 0.2, "c": 0.1, "d": -0.1}, 5
    blocks = noisy_blocks(arms, replicates, 0.03)
    table = np.array([[blocks[a, r] for r in range(replicates)] for a in arms])
    residual = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    df = (replicates - 1) * (len(arms) - 1)
    mse = (residual**2).sum() / df
    found = stats.block_difference(blocks, "b", "d")
    assert found.df == df == 12
    assert found.mean == pytest.approx(table[1].mean() - table[3].mean())
    assert found.se == pytest.approx(math.sqrt(2 * mse / replicates))


def test_block_effects_do_not_enter_the_error():
    blocks = {("a", r): 10.0 * r + 1 for r in range(4)} | {("b", r): 10.0 * r for r in range(4)}
    found = stats.block_difference(blocks, "a", "b")
    assert found.mean == pytest.approx(1.0)
    assert found.se == pytest.approx(0.0, abs=1e-9)


def test_a_missing_cell_costs_a_degree_of_freedom_and_biases_nothing():
    effects = {"a": 0.0, "b": 1.0, "c": 2.0}
    blocks = {(a, r): e + 5.0 * r for a, e in effects.items() for r in range(3)}
    del blocks["c", 2]
    found = stats.block_difference(blocks, "c", "a")
    assert found.df == 3
    assert found.replicates == 2
    assert found.mean == pytest.approx(2.0)


def test_one_replicate_gives_a_size_and_no_error():
    found = stats.block_difference({("a", 0): 3.0, ("b", 0): 3.1}, "a", "b")
    assert found.mean == pytest.approx(-0.1)
    assert not found.judged


def test_arms_that_share_no_replicate_are_not_compared():
    assert stats.block_difference({("a", 0): 3.0, ("b", 1): 3.1}, "a", "b") is None


def test_holm_by_hand():
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_lowers_and_never_passes_bonferroni(ps):
    for p, adjusted in zip(ps, stats.holm(ps), strict=True):
        assert p <= adjusted <= min(1.0, len(ps) * p) + 1e-12


def test_at_least_k_of_n():
    ps = [0.2, 0.01, 0.03, 0.001]
    assert stats.at_least(ps, 4) == pytest.approx(0.2)  # every: the largest
    assert stats.at_least(ps, 3) == pytest.approx(2 * 0.03)
    assert stats.at_least(ps, 1) == pytest.approx(4 * 0.001)  # any: Bonferroni
    assert stats.at_least([0.6, 0.7], 1) == 1.0


@given(st.floats(-0.05, 0.05), st.floats(0.0005, 0.02), st.integers(1, 30))
def test_p_values_say_what_their_intervals_say(mean, se, df):
    found = stats.Difference(mean, se, df, 5, 2)
    delta = 0.01
    low, high = found.interval()
    assert (stats.p_lower(found) < stats.LEVEL) == (high < 0)
    assert (stats.p_no_gain(found, delta) < stats.LEVEL) == (-low < delta)
    low90, high90 = found.interval(2 * stats.LEVEL)
    assert (stats.p_equivalent(found, delta) < stats.LEVEL) == (-delta < low90 and high90 < delta)


def test_no_spread_at_all_is_decided_by_the_size():
    assert stats.p_lower(stats.Difference(-0.1, 0.0, 4, 5, 2)) == 0.0
    assert stats.p_lower(stats.Difference(0.1, 0.0, 4, 5, 2)) == 1.0
    assert stats.p_equivalent(stats.Difference(0.0, 0.0, 4, 5, 2), 0.01) == 0.0


def test_coverage_of_the_interval():
    hits = 0
    for trial in range(400):
        blocks = noisy_blocks({"a": -0.02, "b": 0.0, "c": 0.1}, 3, 0.05, rng_seed=trial)
        low, high = stats.block_difference(blocks, "a", "b").interval()
        hits += low < -0.02 < high
    assert 0.92 < hits / 400 < 0.98


def test_replicates_needed_falls_with_the_effect_and_reaches_its_power():
    small = stats.replicates_needed(stats.Difference(-0.01, 0.01, 12, 5, 4), 0.005)
    large = stats.replicates_needed(stats.Difference(-0.03, 0.01, 12, 5, 4), 0.005)
    assert large < small
    sd, effect = 0.01 * math.sqrt(5 / 2), -0.01
    found = sum(
        stats.p_lower(
            stats.block_difference(
                noisy_blocks({"a": effect, "b": 0, "c": 0, "d": 0}, small, sd, rng_seed=i), "a", "b"
            )
        )
        < stats.LEVEL
        for i in range(300)
    )
    assert 0.74 < found / 300 < 0.88


def test_an_effect_on_the_margin_needs_more_than_anybody_runs():
    assert stats.replicates_needed(stats.Difference(0.00499, 0.01, 12, 5, 4), 0.005) is None


def test_percent():
    assert stats.percent(math.log(26.00 / 26.72)) == pytest.approx(-2.6946, abs=1e-4)


def test_bootstrap_equals_the_analytic_error_of_a_mean():
    rng = np.random.default_rng(1)
    nats = rng.normal(3, 0.5, 400)
    found = stats.cluster_bootstrap(nats, np.ones(400), ["one"] * 400)
    assert found == pytest.approx(nats.std(ddof=1) / 20, rel=0.1)


def test_bootstrap_sees_clusters():
    rng = np.random.default_rng(1)
    sources = [f"s{i // 50}" for i in range(400)]
    nats = 3 + np.repeat(rng.normal(0, 1, 8), 50) + rng.normal(0, 0.1, 400)
    clustered = stats.cluster_bootstrap(nats, np.ones(400), sources)
    naive = stats.cluster_bootstrap(nats, np.ones(400), ["one"] * 400)
    assert clustered > 3 * naive


def test_bootstrap_repeats():
    args = (np.array([1.0, 2.0, 4.0]), np.ones(3), ["a", "a", "b"])
    assert stats.cluster_bootstrap(*args) == stats.cluster_bootstrap(*args)
