"""The gap against the budget on constructed runs: signs, crossings and what is not known."""

import math

import pytest

from bam_lab.report.assumptions import register
from bam_lab.report.blocks import AVERAGE
from bam_lab.report.budgets import budget_lines, budgets_of, budgets_table, crossings, gaps

TIMES = (1, 2, 4, 8)
GAPS = {1: -0.03, 2: -0.01, 4: 0.01, 8: 0.03}


def budgets(times=TIMES, **others):
    return {
        f"{name}{t:g}x": {"axes": {**axes, "budget": t}, "changes": {}, **others}
        for name, axes in (others.pop("settings", None) or {"": {}}).items()
        for t in times
    }


def effects(arm, gaps_):
    return {f"{arm}@{times:g}x": gap for times, gap in gaps_.items()}


@pytest.fixture
def crossed(evidence_of):
    """Soft crosses btx between 2x and 4x, top-1 never does; top-2 is always 2% behind soft."""
    behind = {times: gap + 0.02 for times, gap in GAPS.items()}
    return evidence_of(
        replicates=3,
        settings=budgets(),
        effects={**effects("soft", GAPS), **effects("top-2", behind), "top-1": -0.02},
        sd=0.0005,
    )


def course(evidence, arm, place=AVERAGE):
    return gaps(budgets_of(evidence)[""], arm, "btx", place)


def test_gaps_are_those_of_each_budget(crossed):
    found = course(crossed, "soft")
    assert [gap.budget.times for gap in found] == list(TIMES)
    means = [gap.difference.mean for gap in found]
    assert means == pytest.approx(list(GAPS.values()), abs=2e-3)
    assert all(gap.difference.judged for gap in found)


def test_a_crossing_lies_where_the_line_between_two_means_is_zero(crossed):
    (crossing,) = crossings(course(crossed, "soft"))
    assert (crossing.before, crossing.after) == (2, 4)
    one, other = (gap.difference.mean for gap in course(crossed, "soft")[1:3])
    # By another way: the root of the straight line over log2 of the budget.
    slope = (other - one) / (math.log2(4) - math.log2(2))
    assert math.log2(crossing.at) == pytest.approx(math.log2(2) - one / slope)
    assert crossing.at == pytest.approx(math.sqrt(8), rel=0.1)
    assert crossing.shown
    assert crossings(course(crossed, "top-1")) == ()


def test_a_crossing_that_intervals_do_not_show(evidence_of):
    noisy = evidence_of(replicates=3, settings=budgets(), effects=effects("soft", GAPS), sd=0.05)
    found = [c for arm in ("soft",) for c in crossings(course(noisy, arm))]
    assert found and not any(crossing.shown for crossing in found)
    alone = evidence_of(replicates=1, settings=budgets(), effects=effects("soft", GAPS), sd=0.0)
    (crossing,) = crossings(course(alone, "soft"))
    assert not crossing.shown
    assert all("Not judged (1 replicate)." in line for line in budget_lines(alone))


def test_the_table_says_gaps_change_and_crossing(crossed):
    table = budgets_table(crossed)
    names = [column.name for column in table.columns]
    assert names[0] == "1x (4.10M)" and names[4:] == ["change", "crosses at"]
    rows = {row.head: row.values for row in table.rows}
    assert len(rows) == 3 * 5
    soft = rows["soft, average"]
    wanted = [100 * math.expm1(gap) for gap in (*GAPS.values(), 0.06)]
    assert [value.number for value in soft[:5]] == pytest.approx(wanted, abs=0.3)
    assert all(len(value.runs) == 3 * 2 for value in soft[:4])  # a mixture and its evaluation
    assert soft[5].text.startswith("2.") and soft[5].text.endswith("x")
    assert rows["top-1, average"][5].text == "no crossing"


def test_lines_name_every_crossing(crossed):
    lines = budget_lines(crossed)
    assert len(lines) == 3 + 1  # every arm against btx; top-1 crosses soft or top-2 as well
    soft = next(line for line in lines if line.startswith("soft against btx"))
    assert "at 1x and +3" in soft and "between 2x and 4x, shown" in soft
    assert any(
        "top-1 against btx" in line and "better by the mean at every" in line for line in lines
    )


def test_a_missing_number_stands_with_its_reason(evidence_of):
    evidence = evidence_of(
        replicates=1, settings=budgets(), effects=effects("soft", GAPS), failed=(("soft@2x", 0),)
    )
    row = next(row for row in budgets_table(evidence).rows if row.head == "soft, average")
    assert row.values[1].number is None
    assert "the loss is NaN" in (row.values[1].note or row.note)
    (crossing,) = crossings(course(evidence, "soft"))
    assert (crossing.before, crossing.after) == (1, 4)


def test_other_settings_have_their_own_course(evidence_of):
    settings = budgets(settings={"a-": {"setting": "a"}, "b-": {"setting": "b"}}, times=(1, 2))
    evidence = evidence_of(replicates=1, settings=settings)
    assert {name: [b.setting for b in own] for name, own in budgets_of(evidence).items()} == {
        "a": ["a-1x", "a-2x"],
        "b": ["b-1x", "b-2x"],
    }
    heads = [row.head for row in budgets_table(evidence).rows]
    assert "soft, a, average" in heads and "soft, b, code" in heads


def test_nothing_without_budgets(evidence_of):
    evidence = evidence_of()
    assert budgets_table(evidence) is None
    assert budget_lines(evidence) == []


def test_the_schedule_is_in_the_register(evidence_of):
    """Also of results from before there was a choice."""
    evidence = evidence_of()
    subject = "Learning rate after the warm-up of the mixture phase"
    lines = {line.subject: line for line in register(evidence)}
    assert (lines[subject].value, lines[subject].basis) == ("cosine", "stated")
    phases = evidence.sizes["phases"]
    mixture = phases["mixture"] | {"schedule": "stable_then_decay", "decay_share": 0.2}
    sizes = evidence.sizes | {"phases": phases | {"mixture": mixture}}
    lines = {line.subject: line for line in register(evidence.model_copy(update={"sizes": sizes}))}
    assert lines[subject].value == "stable, then over the last 20% of the steps as 1 − √x"
    assert lines[subject].why == "departs from the stated cosine"
