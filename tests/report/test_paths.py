"""What an arm cost from the seed model on, and how long the longest way to it is."""

import pytest

from bam_lab.report.evidence import StageFact
from bam_lab.report.ledger import training_stages
from bam_lab.report.measures_table import measure_value, measures_table
from bam_lab.report.paths import critical_seconds, lineage_table, lineages
from bam_lab.report.table import MISSING
from tests.report.fake_store import EXPERTS

SETTINGS = {"a": {}, "b": {"shift": 0.01}}


def stage(key, seconds, *inputs):
    return StageFact(
        key=key,
        name="mixture",
        label=key,
        role="mixture",
        arm=None,
        replicate=None,
        domain=None,
        inputs={f"i{n}": other for n, other in enumerate(inputs)},
        done=True,
        ledger={"wall_seconds": seconds} if seconds else {},
    )


def test_branches_stand_side_by_side():
    made = [
        stage("seed", 100),
        stage("short", 10, "seed"),
        stage("long", 70, "seed"),
        stage("upcycle", 0, "short", "long"),
        stage("mixture", 30, "upcycle"),
        stage("elsewhere", 999, "seed"),
    ]
    by_key = {one.key: one for one in made}
    assert critical_seconds([by_key["mixture"]], by_key) == 100 + 70 + 30
    assert critical_seconds([by_key["short"]], by_key) == 110
    assert critical_seconds([], by_key) == 0


def values(table, arm):
    (row,) = [row for row in table.rows if row.head == arm]
    return {
        (column.group, column.name): value
        for column, value in zip(table.columns, row.values, strict=True)
    }


def test_an_arm_pays_for_the_branches_that_it_uses(evidence_of):
    evidence = evidence_of(replicates=2)
    own = values(lineage_table(evidence), "soft")
    assert own["device s", "branches"].number == pytest.approx(len(EXPERTS) * 61.5)
    assert own["device s", "sum"].number == pytest.approx((2 + len(EXPERTS)) * 61.5)
    assert own["critical, s", "path"].number == pytest.approx(2 * 61.5)
    assert own["active × tokens", "branches"].number == len(EXPERTS) * 550_000 * 4_096_000
    assert own["active × tokens", "mixture phase"].number == 587_234 * 800 * 4096
    sent = own["bytes sent", "sum"].number
    assert sent == 3_000_000 * (2000 + len(EXPERTS) * 1000 + 800)


def test_an_arm_that_is_not_trained_has_no_cost(evidence_of):
    evidence = evidence_of(undone=(("soft", 0),))
    assert lineages(evidence, "soft") == {0: ()}
    assert all(v.text == MISSING for v in values(lineage_table(evidence), "soft").values())


def test_dense_models_of_several_settings_are_told_apart(evidence_of):
    names = list(training_stages(evidence_of(settings=SETTINGS)))
    assert {"seed model @a", "seed model @b", "expert law @b", "mixture soft@b"} <= set(names)
    assert "seed model" in training_stages(evidence_of())


def test_measures_are_shown_where_asked_for(evidence_of):
    asked = ("heldout/*/perplexity", "measure/params_total", "measure/needle_accuracy")
    evidence = evidence_of(replicates=2, columns=asked, undone=(("top-1", 0), ("top-1", 1)))
    table = measures_table(evidence, ())
    own = values(table, "btx")
    assert set(own) == {("params total", "ours"), ("needle accuracy", "ours")}
    assert own["params total", "ours"].number > 500_000
    assert own["needle accuracy", "ours"].text == MISSING
    assert "is not asked for" in own["needle accuracy", "ours"].note
    assert "params total: parameters; lower is better" in table.caption
    gone = measure_value(evidence, "top-1", "critical_path_seconds")
    assert gone.text == MISSING and gone.note == "not run yet: mixture top-1 r0"
    assert measures_table(evidence_of(), ()) is None
