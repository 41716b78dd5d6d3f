"""Tables are cut to a page of LaTeX, without losing a cell."""

from dataclasses import replace

import pytest

from bam_lab.report import pages
from bam_lab.report.pages import bands, for_latex, lengths
from bam_lab.report.render import render
from bam_lab.report.table import Column, Row, Table, Value
from tests.report.fake_store import Fake, make_store


def table(rows=4, groups=4, head="arm", names=("ours",), mark="", note=""):
    columns = tuple(Column(name, f"g{i}") for i in range(groups) for name in names)
    return Table(
        label="made",
        title="Made",
        caption="",
        corner="arm",
        columns=columns,
        rows=tuple(
            Row(
                f"{head}{row}",
                tuple(Value(f"{row}.{i:02d} ± 0.12") for i in range(len(columns))),
                mark if row == 0 else "",
                note and f"{note} {row}",
            )
            for row in range(rows)
        ),
    )


def test_a_table_that_fits_is_left_whole():
    whole = table()
    assert for_latex([whole]) == [whole]


def test_a_wide_table_comes_in_bands_with_every_cell():
    wide = table(groups=12)
    cut = bands(wide)
    assert len(cut) > 1
    assert cut[-1].title == f"Made ({len(cut)} of {len(cut)})"
    assert len({piece.label for piece in cut}) == len(cut)
    for number, row in enumerate(wide.rows):
        together = [value for piece in cut for value in piece.rows[number].values]
        assert together == list(row.values)


def test_long_names_leave_less_room():
    short, long = table(groups=6), table(groups=6, head="kv-sharing-top-2-renormalized-")
    assert len(bands(short)) < len(bands(long))


def test_columns_without_groups_are_cut_too():
    wide = table(groups=12)
    plain = replace(wide, columns=tuple(Column(f"c{i}") for i in range(12)))
    cut = bands(plain)
    assert sum(len(piece.columns) for piece in cut) == 12
    assert all(len(piece.columns) == len(piece.rows[0].values) for piece in cut)


def test_a_long_table_comes_in_parts_of_even_length_the_baseline_in_each():
    long = table(rows=31, mark="baseline")
    cut = lengths(long)
    assert [piece.rows[0].head for piece in cut] == ["arm0"] * len(cut)
    heads = [row.head for piece in cut for row in piece.rows[1:]]
    assert heads == [row.head for row in long.rows[1:]]
    sizes = [len(piece.rows) for piece in cut]
    assert max(sizes) - min(sizes) <= 1 and len(cut) > 1


def test_notes_take_lines_too():
    assert len(lengths(table(rows=20))) < len(lengths(table(rows=20, note="why " * 60)))


def test_a_cell_that_a_group_lacks_is_empty():
    made = table(rows=1, groups=2, names=("ours", "paper"))
    short = replace(made, columns=made.columns[:3], rows=(Row("a", made.rows[0].values[:3]),))
    (_, ours), (_, paper) = short.lines(short.rows[0])
    assert [value.text for value in ours] == ["0.00 ± 0.12", "0.02 ± 0.12"]
    assert [value.text for value in paper] == ["0.01 ± 0.12", ""]


@pytest.mark.parametrize(("width", "count"), [(345.0, 2), (180.0, 4)])
def test_more_domains_than_a_page_takes_are_cut_in_latex(width, count, tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "WIDTH", width)
    rendered = render(tmp_path, make_store(tmp_path, Fake(replicates=2)))
    text = rendered.paths["table.tex"].read_text().partition(r"\caption{Stability")[0]
    assert text.count(r"\end{table}") == count
    assert ("(2 of 2)" in text) == (count > 2)
