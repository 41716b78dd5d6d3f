"""Printed tables as files: whole, found by arm, and refused where they do not fit an ablation."""

import re
from pathlib import Path

import pytest

from bam_lab import resources
from bam_lab.cli.kinds import problems_of
from bam_lab.errors import SpecError
from bam_lab.spec.load import load_ablation
from bam_lab.spec.published import PublishedTable, places
from bam_lab.spec.reader import read

PATHS = sorted(resources.folder("published").glob("*.yaml"))


def table(name: str) -> PublishedTable:
    return read(resources.folder("published") / f"{name}.yaml", PublishedTable)


def edited(tmp_path: Path, old: str, new: str) -> list[str]:
    """Return the problems of a copy of BAM's Table 6 with one edit."""
    text = (resources.folder("published") / "bam-table-6.yaml").read_text()
    assert old in text
    path = tmp_path / "published" / "bam-table-6.yaml"
    path.parent.mkdir()
    path.write_text(text.replace(old, new, 1))
    return problems_of(path)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_table_is_whole(path: Path) -> None:
    assert problems_of(path) == []
    assert all(column.domain != "average" for column in table(path.stem).columns.values())


def test_lookup_by_arm_match_domain() -> None:
    one = table("bam-table-1")
    assert one.value("kv-experts", "tokens", "general", "perplexity") == 24.02
    assert one.value("kv-experts", "flops", "general", "perplexity") == 24.84
    assert one.value("btx", "tokens", "math", "perplexity") == 5.77
    assert one.value("kv-experts", "flops", "poetry", "perplexity") is None
    assert one.value("top-9", "flops", "math", "perplexity") is None


def test_a_note_is_the_cells_or_else_the_columns() -> None:
    one, two = table("bam-table-1"), table("bam-table-2")
    shared = one.row("kv-sharing", "flops")
    assert shared is not None
    assert "6.51" in one.note(shared, "law")
    assert one.note(shared, "general") == ""
    assert all("pretrain is left out" in two.note(row, "average") for row in two.rows)


def test_places_name_each_paper_once() -> None:
    found = places((table("bam-table-7"), table("bam-latency"), table("btx-table-5")))
    assert found.startswith("arXiv:2408.08274 v2, Table 7, Inference latency")
    assert found.endswith("; arXiv:2403.07816 v1, Table 5")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("id: bam-table-6", "id: bam-table-66", "id must be the file's name 'bam-table-6'"),
        ("baseline: btx", "baseline: btxx", "baseline must be the arm of a row.*`btx`"),
        ("mean_of: [general,", "mean_of: [generale,", "mean_of.0 must be a column.*`general`"),
        ("arm: top-1", "arm: top-2", "rows.3.arm must be another arm or match"),
        ("values: {general: 26.72", "values: {genera: 26.72", "must be a column.*`general`"),
        (
            "row: soft, match: flops",
            "row: soft",
            r"must be a row's arm and match, got soft \(any\)",
        ),
        ("column: law", "column: lawn", "must be a number that the row has.*`law`"),
        ("column: law", "column: math", "must be a cell that has no note above"),
        ("better: lower", "better: smaller", "better must be 'lower', 'higher' or 'none'"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    problems = edited(tmp_path, old, new)
    assert len(problems) == 1
    assert re.search(said, problems[0])


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("report.published=bam-table-66", "Did you mean `bam-table-6`"),
        ("report.published=[bam-table-6, bam-table-6]", "must name bam-table-6 once"),
        ("report.published=su-table-2", "su-table-2 is of vision models, which no ablation trains"),
        ("report.published=lory-utilisation", "has a row of none of the arms"),
        ("report.published=bam-table-8", "bam-table-8 prints model_shape, and report.columns"),
        ("report.published=bam-latency", "bam-latency prints latency, and report.columns"),
        ("report.published_at={bam-2b: bam-table-22}", "Did you mean `bam-table-2`"),
        ("report.published_at={bam-3b: bam-table-2}", "must be a file of configs/scale"),
    ],
)
def test_a_table_of_another_shape_is_refused(override: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        load_ablation("bam-attention-routing", overrides=[override])


def test_several_tables_may_be_named_and_one_needs_no_brackets() -> None:
    def named(value: str) -> tuple[str, ...]:
        changed = load_ablation("bam-attention-routing", overrides=[f"report.published={value}"])
        return changed.ablation.report.published

    assert named("bam-table-6") == ("bam-table-6",)
    assert named("[bam-table-1, bam-table-6]") == ("bam-table-1", "bam-table-6")
    assert named("''") == ()
