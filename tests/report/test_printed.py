"""The paper's numbers in a report: beside ours, with what is wrong in them, and as printed."""

import math

import pytest

from bam_lab import resources
from bam_lab.report.printed import printed_gap, printed_number, whole_table
from bam_lab.report.render import published_tables, render
from bam_lab.report.tables import absolute_table, effects_table
from bam_lab.spec.published import PublishedTable
from bam_lab.spec.reader import read
from tests.report.fake_store import ARMS, Fake, make_store


def table(name):
    return read(resources.folder("published") / f"{name}.yaml", PublishedTable)


def cell(found, head, group, name="paper"):
    row = next(row for row in found.rows if row.head == head)
    at = [(column.group, column.name) for column in found.columns].index((group, name))
    return row.values[at]


def test_what_is_wrong_with_a_number_stands_beside_it(evidence_of):
    evidence = evidence_of(replicates=2)
    published = published_tables(evidence)
    law = cell(absolute_table(evidence, published), "soft", "law", "paper ppl")
    assert law.text == "6.51"
    assert "Table 6, soft: 6.50 in Table 1's CM row" in law.note
    assert cell(absolute_table(evidence, published), "soft", "general", "paper ppl").note == ""
    effects = effects_table(evidence, published)
    assert "6.50 in Table 1's CM row" in cell(effects, "soft", "law").note
    top_2 = next(row for row in effects.rows if row.head == "top-2")
    assert "better in 2, equal in 1 and worse in 1" in top_2.note  # one note of all its cells


def test_the_first_table_that_has_a_number_is_asked(evidence_of):
    evidence = evidence_of(replicates=2)
    both = (table("bam-table-3"), table("bam-table-6"))
    found = printed_number(evidence, both, "soft", "law", "perplexity")
    assert found is not None and found.value == 6.51
    accuracy = printed_number(evidence, both, "btx", "law", "task_accuracy")
    assert accuracy is not None and accuracy.value == 81.85
    assert printed_number(evidence, both, "soft", "law", "task_accuracy") is None


def test_an_effect_is_of_one_table(evidence_of):
    evidence = evidence_of(replicates=2)
    six = table("bam-table-6")
    row = six.rows[1].model_copy(update={"values": {"law": 9.99}})
    alone = six.model_copy(update={"rows": (row,)})  # without the baseline
    gap = printed_gap(evidence, (alone, six), "soft", "law")
    assert gap is not None and gap.value == pytest.approx(math.log(6.51 / 6.63))


def test_an_average_over_other_test_sets_says_so(evidence_of):
    evidence = evidence_of(
        arms={"btx": ARMS["btx"], "dense": ARMS["btx"], "lory-8": ARMS["btx"]},
        published="lory-figure-2",
        match="tokens",
        effects={},
    )
    evidence = evidence.model_copy(
        update={"ablation": {**evidence.ablation, "baseline": "dense", "match": {"on": "tokens"}}}
    )
    published = published_tables(evidence)
    found = effects_table(evidence, published)
    assert [column.group for column in found.columns if column.name == "paper"] == ["average"]
    ratios = [7.4 / 8.4, 16.0 / 18.0, 9.2 / 10.3, 13.3 / 13.8, 12.5 / 15.2]
    expected = 100 * (math.exp(sum(map(math.log, ratios)) / 5) - 1)
    assert cell(found, "lory-8", "average").number == pytest.approx(expected)
    assert "its own test sets (arxiv, books, wiki, c4, python)" in found.caption
    assert all(c.name != "paper ppl" for c in absolute_table(evidence, published).columns)


def test_a_whole_table_is_as_printed():
    whole = whole_table(table("bam-table-2"))
    assert cell(whole, "BAM DM, KV sharing", "", "pretrain").text == "10.20"
    average = cell(whole, "base", "", "avg")
    assert average.text == "3.33" and "pretrain is left out" in average.note
    assert "Over all four columns it is 4.95" in whole.caption
    assert "In %. " in whole_table(table("bam-table-3")).caption
    assert "In parameters: total, active." in whole_table(table("bam-table-4")).caption
    five = whole_table(table("bam-table-5"))
    assert "Table 6 in the rebuttal." in five.caption
    assert cell(five, "BAM", "", "total").text == "776,000,000"
    four = whole_table(table("btx-table-4"))
    assert cell(four, "Soft routing", "", "160B tokens").text == "--"


def test_every_printed_table_can_be_shown():
    for path in sorted(resources.folder("published").glob("*.yaml")):
        printed = table(path.stem)
        whole = whole_table(printed)
        shown = [value for row in whole.rows for value in row.values if value.number is not None]
        assert len(shown) == sum(len(row.values) for row in printed.rows)
        assert all(float(v.text.replace(",", "")) == v.number for v in shown)


def test_the_page_has_every_table_that_the_ablation_names(tmp_path):
    fake = Fake(replicates=2, published=["bam-table-6", "bam-table-1"], sd=0.001)
    page = render(tmp_path, make_store(tmp_path, fake), tmp_path / "out").paths["report.html"]
    text = page.read_text()
    assert 'id="printed-bam-table-6"' in text and 'id="printed-bam-table-1"' in text
    assert "6.51 in the soft row of Table 6" in text
