"""Cells against chance: models that guess, exact tests, and averages that refuse to mix."""

import numpy as np
import pytest
from scipy import stats as scipy_stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import binom_test

from bam_lab.errors import InputError
from bam_lab.report.chance import Task, TaskScore, averages, cells, grey, unequal

ARC = Task("arc_easy", "1.0", 0)
BOOLQ = Task("boolq", "2.0", 0)
GSM = Task("gsm8k", "3.0", 8)


def score(arm, task=ARC, correct=40, items=100, chance=0.25, replicate=None, **changes):
    settings = {"value": None if correct is None else correct / items} | changes
    return TaskScore(arm, replicate, task, items, chance=chance, correct=correct, **settings)


def test_p_is_the_exact_binomial_of_one_model():
    found = cells([score("a", correct=33)])[ARC, "a"]
    assert found.p == pytest.approx(binom_test(33, 100, 0.25, "larger"))
    assert found.p == pytest.approx(scipy_stats.binom.sf(32, 100, 0.25))
    assert found.standing == "above"  # p 0.045
    assert cells([score("a", correct=32)])[ARC, "a"].standing == "at"


def test_models_of_a_column_are_corrected_together():
    correct = [33, 36, 25, 40]
    scores = [score(f"m{i}", correct=c) for i, c in enumerate(correct)]
    ps = [binom_test(c, 100, 0.25, "larger") for c in correct]
    wanted = multipletests(ps, method="holm")[1]
    found = cells([*scores, score("m0", BOOLQ, correct=99, chance=0.5)])
    assert [found[ARC, f"m{i}"].p for i in range(4)] == pytest.approx(list(wanted))
    assert [found[ARC, f"m{i}"].standing for i in range(4)] == ["at", "above", "at", "above"]
    assert found[BOOLQ, "m0"].standing == "above"  # another column is another family


@pytest.mark.parametrize(("items", "chance"), [(20, 0.25), (100, 0.5), (1000, 0.2)])
def test_columns_of_guessing_models_are_marked(items, chance):
    """Of columns of eight guessing models at most 5% have one that passes for better."""
    rng, columns = np.random.default_rng(1), 400
    passed = 0
    for _ in range(columns):
        guessed = rng.binomial(items, chance, 8).tolist()
        column = [
            score(f"m{i}", correct=c, items=items, chance=chance) for i, c in enumerate(guessed)
        ]
        passed += grey(cells(column)) == set()
    assert passed <= scipy_stats.binom.ppf(0.999, columns, 0.05)


def test_a_model_that_knows_is_not_marked():
    rng = np.random.default_rng(2)
    known = [score("a", correct=int(rng.binomial(400, 0.4)), items=400) for _ in range(50)]
    assert all(cells([one])[ARC, "a"].standing == "above" for one in known)


def test_an_arm_is_above_chance_when_more_than_half_of_its_replicates_are():
    lucky = [score("a", correct=c, replicate=i) for i, c in enumerate([45, 25, 26])]
    good = [score("a", correct=c, replicate=i) for i, c in enumerate([45, 25, 44])]
    assert cells(lucky)[ARC, "a"].standing == "at"
    assert cells(good)[ARC, "a"].standing == "above"
    ps = sorted(binom_test(c, 100, 0.25, "larger") for c in (45, 25, 44))
    assert cells(good)[ARC, "a"].p == pytest.approx(2 * ps[1])
    assert cells(good)[ARC, "a"].value == pytest.approx(0.38)


def test_worse_than_guessing_is_said():
    assert cells([score("a", correct=10)])[ARC, "a"].standing == "below"
    assert grey(cells([score("a", correct=10), score("b", correct=25)])) == {ARC}


def test_free_answers_have_a_chance_of_nothing():
    found = cells([score("a", GSM, correct=0, chance=0.0), score("b", GSM, correct=2, chance=0.0)])
    assert (found[GSM, "a"].standing, found[GSM, "b"].standing) == ("at", "above")
    assert grey(found) == set()


def test_what_is_no_share_of_right_answers_is_not_tested_nor_grey():
    found = cells([score("a", correct=None, value=0.3)])
    assert found[ARC, "a"].standing == "untested" and found[ARC, "a"].p is None
    assert grey(found) == set()


def test_averages_with_and_without_the_columns_that_tell_nothing():
    scores = [
        score("a", ARC, 60),
        score("b", ARC, 40),
        score("a", BOOLQ, 52, chance=0.5),
        score("b", BOOLQ, 48, chance=0.5),
        score("a", GSM, 10, chance=0.0),
        score("b", GSM, 20, chance=0.0),
    ]
    found = averages(scores)
    assert found["a"].every == pytest.approx((0.60 + 0.52 + 0.10) / 3)
    assert found["a"].told == pytest.approx((0.60 + 0.10) / 2)
    assert found["b"].told == pytest.approx((0.40 + 0.20) / 2)
    assert averages(scores[2:4])["a"].told is None


def test_replicates_are_averaged_before_tasks():
    scores = [score("a", ARC, c, replicate=i) for i, c in enumerate([40, 60])]
    scores += [score("a", GSM, c, chance=0.0, replicate=i) for i, c in enumerate([10, 30])]
    assert averages(scores)["a"].every == pytest.approx((0.5 + 0.2) / 2)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (ARC._replace(version="2.0"), r"arc_easy \(version 2.0, 0 shots\)"),
        (ARC._replace(shots=5), r"arc_easy \(version 1.0, 5 shots\)"),
        (BOOLQ, r"boolq \(version 2.0, 0 shots\)"),
    ],
)
def test_averages_refuse_other_tasks_versions_and_shots(changed, told):
    scores = [score("a"), score("a", GSM, chance=0.0), score("b", changed)]
    scores += [score("b", GSM, chance=0.0)]
    cells(scores)  # the cells stand by themselves
    with pytest.raises(
        InputError, match=f"a must have every task of the average, got none of {told}"
    ):
        averages(scores)


def test_averages_refuse_a_task_without_some_replicates():
    scores = [score("a", replicate=0), score("a", replicate=1)]
    scores += [score("a", BOOLQ, chance=0.5, replicate=0)]
    with pytest.raises(InputError, match=r"same replicates of every task, got 2 of .*, 1 of boolq"):
        averages(scores)
    assert unequal(scores[:2]) == []


@pytest.mark.parametrize(
    ("scores", "told"),
    [
        ([score("a"), score("b", items=50, correct=20)], "same items .* got 100 and 50"),
        ([score("a"), score("b", chance=0.5)], "same chance .* got 0.25 and 0.5"),
        ([score("a"), score("a")], "must stand once for a replicate, got it twice"),
        ([score("a", chance=1.0)], "chance must be at least 0 and below 1, got 1.0"),
        ([score("a", value=40.0)], "between 0 and 1, of at least one item, got 40.0 of 100"),
        ([score("a", value=0.41)], "share of right answers, got 0.41 and 40 of 100"),
        ([score("a", correct=101, value=1.0)], "share of right answers, got 1.0 and 101 of 100"),
    ],
)
def test_contradictions_are_refused(scores, told):
    with pytest.raises(InputError, match=told):
        cells(scores)
