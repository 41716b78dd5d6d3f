"""Paired gains against other people's tests, by simulation and by hand; what one task carries."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import optimize
from scipy import stats as scipy_stats
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar

from bam_lab import resources
from bam_lab.errors import InputError
from bam_lab.report.chance import Task
from bam_lab.report.gains import (
    EXACT,
    Answer,
    clustered,
    gain,
    leave_one_out,
    majority,
    mcnemar,
    score_interval,
    without_largest,
)
from bam_lab.spec.published import PublishedTable
from bam_lab.spec.reader import read

TASK = Task("arc", "1", 0)


def answers(arm, values, documents=None, replicate=None, **changes):
    documents = documents or [str(i) for i in range(len(values))]
    return [
        Answer(arm, replicate, TASK, document, f"{document}/{i}", value, **changes)
        for i, (document, value) in enumerate(zip(documents, values, strict=True))
    ]


@pytest.mark.parametrize(("better", "worse"), [(0, 0), (3, 0), (5, 1), (12, 30), (7, 7)])
def test_mcnemar_against_statsmodels(better, worse):
    wanted = statsmodels_mcnemar([[20, better], [worse, 9]], exact=True).pvalue
    assert mcnemar(better, worse) == pytest.approx(wanted)


def tango(better, worse, items, delta):
    """Return Tango's statistic with the shares found by maximising the likelihood: the oracle."""

    def loss(only_second):
        only_first = only_second + delta
        rest = 1 - only_first - only_second
        if min(only_first, only_second, rest) <= 0:
            return math.inf
        told = better * math.log(only_first) + worse * math.log(only_second)
        return -told - (items - better - worse) * math.log(rest)

    low, high = max(0.0, -delta), (1 - delta) / 2
    best = optimize.minimize_scalar(
        loss, bounds=(low, high), method="bounded", options={"xatol": 1e-12}
    )
    variance = items * (2 * best.x + delta - delta**2)
    return (better - worse - items * delta) / math.sqrt(variance)


@pytest.mark.parametrize(
    ("better", "worse", "items"), [(9, 3, 40), (1, 12, 60), (30, 20, 200), (4, 4, 15)]
)
def test_ends_of_the_score_interval_are_where_its_statistic_says_so(better, worse, items):
    low, high = score_interval(better, worse, items)
    assert tango(better, worse, items, low) == pytest.approx(1.959964, abs=1e-4)
    assert tango(better, worse, items, high) == pytest.approx(-1.959964, abs=1e-4)
    assert score_interval(worse, better, items) == pytest.approx((-high, -low), abs=1e-7)


def test_the_score_interval_where_nothing_differs():
    z = scipy_stats.norm.ppf(0.975) ** 2
    low, high = score_interval(0, 0, 44)
    assert (low, high) == pytest.approx((-z / (44 + z), z / (44 + z)), abs=1e-7)
    assert score_interval(5, 0, 5)[1] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("items", [12, 40])
def test_the_score_interval_covers(items):
    """By summing over all outcomes of a true gain of 0.1."""
    only_first, only_second = 0.25, 0.15
    total = 0.0
    for better, worse in product(range(items + 1), repeat=2):
        if better + worse > items:
            continue
        low, high = score_interval(better, worse, items)
        if low <= 0.1 <= high:
            rest = items - better - worse
            total += scipy_stats.multinomial.pmf(
                [better, worse, rest], items, [only_first, only_second, 0.6]
            )
    assert 0.93 < total < 0.985


def test_one_answer_a_document_is_paired():
    first = answers("a", [1.0, 1, 1, 0, 1, 1, 0, 1])
    second = answers("b", [1.0, 0, 0, 0, 1, 0, 1, 1])
    found = gain([*first, *second], "a", "b", TASK)
    assert (found.mean, found.p, found.how) == (0.25, mcnemar(3, 1), "paired")
    assert (found.low, found.high) == score_interval(3, 1, 8)
    back = gain([*first, *second], "b", "a", TASK)
    assert (back.mean, back.p) == (-0.25, found.p)


def test_flipped_signs_against_scipys_permutation_test():
    rng = np.random.default_rng(0)
    values = rng.normal(0.1, 0.3, 10).clip(-1, 1)
    _, _, p = clustered(values, [str(i) for i in range(10)])
    wanted = scipy_stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=np.inf
    )
    assert p == pytest.approx(wanted.pvalue)


def test_many_documents_give_nearly_the_bootstraps_interval():
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 6, 150)
    effects = rng.normal(0.05, 0.2, 150)
    parts = [rng.normal(e, 0.1, s).clip(-1, 1) for e, s in zip(effects, sizes, strict=True)]
    documents = [str(i) for i, s in enumerate(sizes) for _ in range(s)]
    differences = np.concatenate(parts)
    low, high, p = clustered(differences, documents)
    totals = np.array([part.sum() for part in parts])
    wanted = scipy_stats.bootstrap(
        (totals, sizes),
        lambda t, s, axis=-1: t.sum(axis) / s.sum(axis),
        paired=True,
        method="percentile",
        n_resamples=4000,
        rng=np.random.default_rng(4),
    ).confidence_interval
    assert (low, high) == pytest.approx((wanted.low, wanted.high), abs=0.006)
    assert low < differences.mean() < high
    assert (p < 0.05) is not (low <= 0 <= high)


@pytest.mark.parametrize("count", [6, 10, EXACT, EXACT + 1, 40])
def test_interval_and_test_say_the_same(count):
    rng = np.random.default_rng(count)
    for shift in (-0.3, -0.1, 0.0, 0.1, 0.2, 0.3):
        values = (rng.normal(shift, 0.2, 2 * count)).clip(-1, 1)
        low, high, p = clustered(values, [str(i // 2) for i in range(2 * count)])
        assert (p < 0.05) is not (low <= 0 <= high)
        assert low <= values.mean() <= high


def test_clustered_intervals_cover_and_items_of_a_document_count_as_one():
    rng = np.random.default_rng(5)
    covered, alone = 0, 0
    for _ in range(300):
        values = np.repeat(rng.normal(0.1, 0.2, 10), 8)  # eight equal items a document
        low, high, _ = clustered(values, [str(i // 8) for i in range(80)])
        covered += low <= 0.1 <= high
        low, high, _ = clustered(values, [str(i) for i in range(80)])
        alone += low <= 0.1 <= high
    assert 0.92 <= covered / 300 <= 0.98
    assert alone / 300 < 0.75


def test_too_few_documents_say_nothing():
    assert clustered(np.full(20, 0.5), [str(i // 4) for i in range(20)])[:2] == (-1.0, 1.0)
    low, high, p = clustered(np.full(24, 0.5), [str(i // 4) for i in range(24)])
    assert (low, high, p) == (0.5, 0.5, 2 / 2**6)


def test_no_differing_item_is_no_proof_of_no_gain():
    assert clustered(np.zeros(30), [str(i // 3) for i in range(30)]) == (
        *score_interval(0, 0, 10),
        1.0,
    )


def test_several_items_of_a_document_are_clustered():
    documents = [str(i // 4) for i in range(32)]
    first, second = [1.0, 1, 1, 1] * 7 + [0.0] * 4, [0.0] * 28 + [1.0] * 4
    rows = answers("a", first, documents) + answers("b", second, documents)
    found = gain(rows, "a", "b", TASK)
    assert (found.how, found.documents, found.items, found.mean) == ("clustered", 8, 32, 0.75)
    assert found.p == pytest.approx(mcnemar(7, 1))  # a document votes once
    assert mcnemar(28, 4) < 0.001


def test_replicates_are_averaged_item_by_item():
    rows = []
    for replicate, flip in ((0, 1.0), (1, 0.0)):
        rows += answers("a", [1.0, flip, 0, 1] * 3, replicate=replicate)
        rows += answers("b", [0.0, 1, 0, 1] * 3, replicate=replicate)
    found = gain(rows, "a", "b", TASK)
    assert (found.mean, found.how, found.items) == (pytest.approx(0.125), "clustered", 12)


def test_other_items_are_refused():
    rows = answers("a", [1.0, 0]) + answers("b", [1.0, 0, 1])
    with pytest.raises(InputError, match=r"same items of arc .* got 2 and 3, 1 of them only one"):
        gain(rows, "a", "b", TASK)
    with pytest.raises(InputError, match="got 2 and 0"):
        gain(rows, "a", "c", TASK)


def test_majority():
    given, wanted = "BBBBABBB", "ABABABAA"
    rows = [
        Answer("a", None, TASK, str(i), str(i), float(g == w), g, w)
        for i, (g, w) in enumerate(zip(given, wanted, strict=True))
    ]
    found = majority(rows, "a", TASK)
    assert (found.answer, found.share, found.wanted) == ("B", 7 / 8, 5 / 8)
    assert majority(rows, "b", TASK) is None
    assert majority(answers("a", [1.0]), "a", TASK) is None


def test_leave_one_out_by_hand():
    a, b, c = (Task(name, "1", 0) for name in "abc")
    gains = {a: 0.30, b: 0.06, c: -0.03}
    assert leave_one_out(gains) == {
        a: pytest.approx(0.015),
        b: pytest.approx(0.135),
        c: pytest.approx(0.18),
    }
    assert without_largest(gains, 1) == (pytest.approx(0.015), (a,))
    assert without_largest(gains, 2) == (pytest.approx(-0.03), (a, b))
    assert leave_one_out({a: 0.1}) == {}


def test_two_tasks_carry_lorys_printed_gain():
    """arXiv:2405.03133 Table 1, 1.5B with 32 experts: +4.6 on 17 tasks, about +0.8 without two."""
    path = resources.folder("published") / "lory-table-1-1.5b.yaml"
    table = read(path, PublishedTable)
    rows = {row.arm: row.values for row in table.rows}
    gains = {
        Task(name, "printed", 0): (rows["lory-32"][name] - rows["dense"][name]) / 100
        for name in table.columns
        if name != "average"
    }
    assert len(gains) == 17
    assert sum(gains.values()) / 17 == pytest.approx(0.046, abs=0.0005)
    value, left = without_largest(gains, 2)
    assert {task.name for task in left} == {"amazon", "yelp"}
    assert value == pytest.approx(0.008, abs=0.001)
