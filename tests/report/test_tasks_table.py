"""The tables of task scores: what is marked, greyed, averaged and refused; and their renderings."""

import csv
import io

import pytest

from bam_lab.errors import InputError
from bam_lab.report.chance import Task
from bam_lab.report.gains import Gain, Majority
from bam_lab.report.table import MISSING, to_csv, to_rich
from bam_lab.report.tasks_table import (
    AT_CHANCE,
    BELOW_CHANCE,
    UNTESTED,
    answers_table,
    carried_table,
    gains_table,
    scores_table,
)
from bam_lab.report.templates import render_tex
from tests.report.test_chance import ARC, BOOLQ, GSM, score

SCORES = [
    score("btx", ARC, 60, runs=("evaluate-1",)),
    score("bam", ARC, 26),
    score("btx", BOOLQ, 52, chance=0.5),
    score("bam", BOOLQ, 48, chance=0.5),
    score("btx", GSM, 10, chance=0.0),
    score("bam", GSM, 20, chance=0.0),
]


def table_of(scores=SCORES, **settings):
    return scores_table(scores, ["btx", "bam"], "btx", **settings)


def row(table, head):
    (found,) = [row for row in table.rows if row.head == head]
    return found


def test_cells_at_chance_are_marked_and_dull_columns_greyed():
    table = table_of()
    btx, bam = row(table, "btx"), row(table, "bam")
    assert [column.dim for column in table.columns] == [False, True, False, False, False]
    assert [value.note for value in btx.values[:3]] == ["", AT_CHANCE, ""]
    assert [value.note for value in bam.values[:3]] == [AT_CHANCE, AT_CHANCE, ""]
    assert [value.dim for value in bam.values[:3]] == [True, True, False]
    assert "boolq, where no model is above chance" in table.caption
    assert "100 items, chance 25.0%, p < 0.001" in btx.values[0].hover
    assert btx.values[0].runs == ("evaluate-1",)
    assert (btx.mark, bam.mark) == ("baseline", "")


def test_chance_stands_above_the_arms():
    chance = table_of().rows[0]
    assert (chance.head, chance.mark) == ("chance", "external")
    assert [value.text for value in chance.values[:3]] == ["25.0", "50.0", "0.0"]


def test_averages_with_and_without_the_dull_columns():
    table = table_of()
    assert [value.text for value in row(table, "btx").values[3:]] == ["40.7", "35.0"]
    assert [value.text for value in row(table, "bam").values[3:]] == ["31.3", "23.0"]
    dull = row(table_of(SCORES[2:4]), "btx").values
    assert (dull[1].text, dull[2].text) == ("52.0", MISSING)
    assert dull[2].note == "no model is above chance on any task"


def test_another_version_is_another_column_and_there_is_no_average():
    other = GSM._replace(version="2.0", shots=5)
    table = table_of([*SCORES[:5], score("bam", other, 20, chance=0.0)])
    names = [column.name for column in table.columns[2:4]]
    assert names == ["gsm8k, 8-shot, v3.0", "gsm8k, 5-shot, v2.0"]
    assert row(table, "bam").values[2].note == "not scored on gsm8k (version 3.0, 8 shots)"
    for arm in ("btx", "bam"):
        assert [value.text for value in row(table, arm).values[-2:]] == [MISSING] * 2
        assert "must have every task of the average" in row(table, arm).values[-1].note


def test_other_marks():
    scores = [
        score("btx", ARC, 10),
        score("bam", ARC, 50),
        score("btx", GSM, correct=None, value=0.1),
    ]
    scores += [score("bam", GSM, correct=None, value=0.2)]
    table = table_of(scores)
    assert row(table, "btx").values[0].note == BELOW_CHANCE
    assert row(table, "bam").values[1].note == UNTESTED
    majorities = {(ARC, "bam"): Majority("B", 0.97, 0.4)}
    told = row(table_of(majorities=majorities), "bam").values[0]
    assert "gives B in 97% of the items" in told.title
    sure = row(table_of(scores, majorities=majorities), "bam").values[0]
    assert sure.note == "Gives one answer in 90% of the items or more."


def test_replicates_stand_with_their_spread():
    scores = [
        score(arm, ARC, c, replicate=i) for arm in ("btx", "bam") for i, c in ((0, 40), (1, 60))
    ]
    table = table_of(scores)
    assert row(table, "bam").values[0].text == "50.0 ± 14.1"
    assert "standard deviation" in table.caption and "standard deviation" not in table_of().caption


def test_contradictions_reach_the_reader():
    with pytest.raises(InputError, match="same items"):
        table_of([score("btx"), score("bam", items=50, correct=20)])


def gain_of(task, mean, p):
    return Gain(task, mean, mean - 0.02, mean + 0.02, p, 100, 100, "paired")


def test_gains_are_corrected_over_tasks():
    table = gains_table({"bam": [gain_of(ARC, 0.05, 0.03), gain_of(GSM, -0.01, 0.001)]}, "btx")
    (arc, gsm) = table.rows
    assert [value.text for value in arc.values] == ["+5.0", "+3.0 to +7.0", "0.030"]
    assert [value.text for value in gsm.values] == ["−1.0", "−3.0 to +1.0", "0.002"]
    assert arc.values[0].bold and gsm.values[0].bold
    table = gains_table({"bam": [gain_of(ARC, 0.05, 0.03), gain_of(GSM, 0.01, 0.04)]}, "btx")
    assert [r.values[2].text for r in table.rows] == ["0.060", "0.060"]
    assert not table.rows[0].values[0].bold
    more = gains_table(
        {"bam": [gain_of(ARC, 0.05, 0.03)], "top-1": [gain_of(GSM, 0.1, 0.5)]}, "btx"
    )
    assert more.rows[0].values[3].note == "not scored on the same items"


def test_what_one_task_carries_by_hand():
    gains = {ARC: 0.30, BOOLQ: 0.06, GSM: -0.03}
    table = carried_table({"lory": gains}, "dense")
    found = {row.head: row.values[0].text for row in table.rows}
    assert found == {
        "all tasks": "+11.00",
        "without arc_easy": "+1.50",
        "without boolq": "+13.50",
        "without gsm8k": "+18.00",
        "without its two largest": "−3.00",
    }
    assert table.rows[-1].values[0].title == "without arc_easy and boolq"
    with pytest.raises(InputError, match="same tasks for every arm, got 3 of lory, 1 of moe"):
        carried_table({"lory": gains, "moe": {ARC: 0.1}}, "dense")


def test_shares_of_the_most_frequent_answer():
    found = {(ARC, "btx"): Majority("B", 0.5, 0.3), (ARC, "bam"): Majority("A", 0.97, 0.3)}
    table = answers_table(found, ["btx", "bam", "top-1"])
    assert [row.values[0].text for row in table.rows] == ["30.0", "50.0", "97.0", MISSING]
    assert answers_table({}, ["btx"]) is None


def test_renderings():
    gains = gains_table({"bam": [gain_of(Task("a_b", "1", 0), 0.05, 0.03)]}, "btx")
    lines = list(csv.DictReader(io.StringIO(to_csv([table_of(), gains]))))
    assert len(lines) == 3 * 5 + 3
    (cell,) = [x for x in lines if (x["row"], x["column"]) == ("bam", "arc_easy")]
    assert (cell["value"], cell["note"]) == ("26.0", AT_CHANCE)
    assert to_rich(table_of()).row_count == 3
    for table in (table_of(), gains):
        evidence = {"id": "x", "scale": "nano", "command": "c"}
        tex = render_tex("tables.tex.j2", tables=[table], evidence=evidence)
        assert r"\bottomrule" in tex and "?" not in tex
