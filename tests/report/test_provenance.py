"""What a report says of experts: what is behind them, and how far they moved."""

import pytest

from bam_lab.report.provenance import experts_table, moved_table
from bam_lab.report.render import render
from bam_lab.spec.experts import listed


def cells(table, head):
    row = next(row for row in table.rows if row.head == head)
    return {
        " ".join((column.group, column.name)).strip(): value
        for column, value in zip(table.columns, row.values, strict=True)
    }


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("seed_model",) * 4, "seed_model x 4"),
        (("seed_model", "code", "code", "law"), "seed_model, code x 2, law"),
        (("code[1/2]", "code[2/2]"), "code[1/2], code[2/2]"),
        (("code", "law", "code"), "code, law, code"),
        ((), ""),
    ],
)
def test_names_are_listed_in_order(names, text):
    assert listed(names) == text


def test_experts_of_every_arm(evidence_of):
    table = experts_table(evidence_of())
    assert table.rows[0].head == "btx"
    assert table.rows[0].mark == "baseline"
    found = cells(table, "soft")
    assert found["made of"].text == "seed_model, code, law, math"
    assert found["experts"].number == 4
    assert found["trained in the mixture phase"].text == "yes"


def test_frozen_experts_are_said_to_be(evidence_of):
    evidence = evidence_of()
    arm = evidence.arm("soft")
    frozen = arm.model_copy(update={"method": arm.method | {"frozen_experts": True}})
    arms = tuple(frozen if one.name == "soft" else one for one in evidence.arms)
    table = experts_table(evidence.model_copy(update={"arms": arms}))
    assert cells(table, "soft")["trained in the mixture phase"].text == "no"
    assert cells(table, "btx")["trained in the mixture phase"].text == "yes"


def test_how_far_dense_experts_moved(evidence_of):
    evidence = evidence_of()
    table = moved_table(evidence)
    assert [row.head for row in table.rows] == ["code"]  # the seed model has not moved
    found = cells(table, "code")
    assert found["all distance"].text == "0.400"
    assert found["ffn cosine"].number == pytest.approx(0.9)
    assert set(found["all distance"].runs) == {receipt.key for receipt in evidence.receipts}


def test_nothing_is_said_where_nothing_was_measured(evidence_of):
    evidence = evidence_of()
    for facts in ({}, {"provenance": {"compared_with": "law", "models": {}}}):
        receipts = tuple(r.model_copy(update={"facts": facts}) for r in evidence.receipts)
        assert moved_table(evidence.model_copy(update={"receipts": receipts})) is None


def test_both_tables_are_on_the_page(five, tmp_path):
    root, index = five
    page = render(root, index, tmp_path).paths["report.html"].read_text()
    for title in ("Experts", "How far the dense experts moved"):
        assert title in page
