"""What the report says of the text, and of text that is held out from every model."""

import csv
import io
import json
import shutil
import subprocess

import pytest

from bam_lab.report.claims import judge
from bam_lab.report.render import declared_claims, render
from bam_lab.report.text import (
    alone_table,
    contamination_table,
    corpus_table,
    crossed_table,
    items_table,
    order_table,
    repeats_table,
    stands_in,
)
from tests.report.fake_store import Fake, make_store

NASTY = '=HYPERLINK("http://x","y")<script>alert(1)</script> & \\input{x} $_%'


@pytest.fixture
def full(evidence_of):
    return evidence_of(replicates=2, text=True, alone=("web",))


def cells(table, head):
    (row,) = [row for row in table.rows if row.head == head]
    return [value.text for value in row.values]


def test_sources_with_all_that_is_known(full):
    table = corpus_table(full)
    assert cells(table, "code-a") == [
        "code", "code-package 1.0", "4.00", "0.15", "0.15", "960", "42", "CC0-1.0",
    ]  # fmt: skip
    (row,) = [row for row in table.rows if row.head == "code-a"]
    assert row.values[6].title == "12 near duplicate, 30 too short"
    assert [row.head for row in table.rows][::2][:2] == ["general-a", "code-a"]
    assert table.rows[-1].head == "web-a"


def test_contamination(full):
    assert cells(contamination_table(full), "law") == [
        "60", "6", "1.25", "60", "6", "0.25", "17",
    ]  # fmt: skip
    table = items_table(full)
    assert cells(table, "human-eval") == ["164", "0", "3", "0", "0", "--", "MIT"]
    assert cells(table, "lost")[0] == "--"
    assert table.footnotes() == ["no network"]


def test_how_different_the_domains_are(full):
    table = crossed_table(full)
    assert cells(table, "code") == ["3.00 (2.0)", "2.00", "3.00 (2.0)", "3.00 (2.0)"]
    assert cells(table, "equal mix") == ["2.50"] * 4


def test_order_and_repeats(full):
    assert cells(order_table(full), "math") == ["similar order", "900", "0.412", "0.097", "21"]
    table = repeats_table(full)
    assert [column.name for column in table.columns] == [
        "expert code", "expert law", "expert math",
    ]  # fmt: skip
    assert cells(table, "law-a") == ["--", "1.50", "--"]


def test_what_is_held_out_stands_apart(full):
    table = alone_table(full)
    assert [row.head for row in table.rows][:2] == ["seed model", "code expert"]
    assert {column.group for column in table.columns} == {"web"}
    assert all(value.number for row in table.rows for value in row.values)
    assert "web: web pages" in table.caption


def test_an_older_store_has_none_of_it_and_still_a_report(tmp_path):
    rendered = render(tmp_path, make_store(tmp_path, Fake(replicates=2)))
    page = rendered.paths["report.html"].read_text()
    for label in ("contamination", "evaluation_items", "crossed", "order", "repeats", "alone"):
        assert f'<figure class="table" id="{label}">' not in page
    assert '<figure class="table" id="corpus">' in page


def test_every_table_is_on_the_page_and_in_the_csv(tmp_path):
    fake = Fake(replicates=2, text=True, alone=("web",), added=("poetry",))
    rendered = render(tmp_path, make_store(tmp_path, fake))
    page = rendered.paths["report.html"].read_text()
    labels = {row["table"] for row in read_csv(rendered)}
    for label in ("contamination", "evaluation_items", "crossed", "order", "repeats", "alone"):
        assert f'<figure class="table" id="{label}">' in page
        assert label in labels
    assert "Held out from every model: web" in rendered.paths["table.tex"].read_text()
    assert "<code>--domain poetry</code>" in page
    assert "In place of Common Crawl stands the domain “general” (general text)" in page


def test_general_text_that_stands_in_for_nothing_is_named(evidence_of):
    evidence = evidence_of()
    assert stands_in(evidence).startswith("In place of Common Crawl")
    evidence.corpus["domains"]["general"]["stands_in_for"] = None
    assert stands_in(evidence).startswith("The general text is the domain “general”")


@pytest.mark.parametrize(
    ("data", "stands_in_for", "told"),
    [
        ({"soft": {"general_share": 0.5}}, "Common Crawl", True),
        ({"soft": {"general_repeats": 8}}, "Common Crawl", True),
        ({"soft": {"order": "random"}}, "Common Crawl", False),
        ({"soft": {"general_share": 0.1}}, "Common Crawl", False),  # the recipe's own
        ({"soft": {"general_share": 0.5}}, None, False),
    ],
)
def test_verdicts_about_general_text_say_stand_in(evidence_of, data, stands_in_for, told):
    evidence = evidence_of(replicates=3, data=data)
    evidence.corpus["domains"]["general"]["stands_in_for"] = stands_in_for
    judged = judge(evidence, declared_claims(evidence))
    made = [judgement for judgement in judged if any(part.leaves for part in judgement.parts)]
    assert made
    for judgement in made:
        assert ("stand-in" in judgement.qualifier) == told
        assert any("a stand-in for Common Crawl" in line for line in judgement.details) == told


def read_csv(rendered):
    return list(csv.DictReader(io.StringIO(rendered.paths["table.csv"].read_text())))


def hostile(tmp_path):
    """Render a store whose titles and licences are hostile."""
    index = make_store(tmp_path, Fake(replicates=2, text=True, alone=("web",)))
    path = next((tmp_path / "stages").glob("corpus-*")) / "corpus.json"
    corpus = json.loads(path.read_text())
    for record in corpus["domains"].values():
        record["title"] = NASTY
        for source in record["sources"].values():
            source["licence"] = NASTY
    path.write_text(json.dumps(corpus))
    return render(tmp_path, index, tmp_path / "out")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles_whatever_users_write(tmp_path):
    folder = hostile(tmp_path).paths["table.tex"].parent
    document = r"\documentclass{article}\usepackage{booktabs}\begin{document}\input{table.tex}"
    (folder / "all.tex").write_text(document + r"\end{document}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]


def test_text_of_users_is_escaped(tmp_path):
    rendered = hostile(tmp_path)
    page = rendered.paths["report.html"].read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "\\input{x}" not in rendered.paths["table.tex"].read_text()
    rows = read_csv(rendered)
    for row in rows:
        for text in row.values():
            assert not text.startswith(("=", "@", "\t", "\r")), row
    assert any(row["text"] == f"'{NASTY}" for row in rows)
    effects = [row["text"] for row in rows if row["table"] == "effects"]
    assert any(text[0] in "+−" for text in effects)  # numbers stay numbers
