"""Cut tables to what a page of LaTeX takes: `article`, footnote size, booktabs and nothing else.

A table is cut between groups of columns where it is too wide, then between rows where it is too
long; the baseline stands in every piece.
"""

from collections.abc import Sequence
from dataclasses import replace

from bam_lab.report.table import Row, Table

WIDTH = 345.0
"""Points of a line of `article`."""
CHARACTER = 4.3
"""Points of a character in footnote size, figures and lower-case letters alike."""
GAP = 5.0
"""Points between two columns."""
LINES = 44.0
NOTE_CHARACTERS = 105


def for_latex(tables: Sequence[Table]) -> list[Table]:
    """Return the tables in pieces that fit on a page each."""
    return [piece for table in tables for band in bands(table) for piece in lengths(band)]


def bands(table: Table) -> list[Table]:
    """Return the table cut into tables of as many column groups as a line takes."""
    names = table.headings
    most = _groups_a_line(table)
    cut = [names[start : start + most] for start in range(0, len(names), most)]
    if len(cut) == 1:
        return [table]
    made = []
    for number, band in enumerate(cut, start=1):
        kept = [
            i
            for i, column in enumerate(table.columns)
            if (column.group if table.grouped else column.name) in band
        ]
        made.append(
            replace(
                table,
                label=f"{table.label}-{number}",
                title=f"{table.title} ({number} of {len(cut)})",
                columns=tuple(table.columns[i] for i in kept),
                rows=tuple(
                    replace(row, values=tuple(row.values[i] for i in kept)) for row in table.rows
                ),
            )
        )
    return made


def lengths(table: Table) -> list[Table]:
    """Return the table cut into tables of as many rows as a page takes, about the same of each."""
    count, limit = len(_cut(table, LINES)), LINES
    while count > 1 and len(_cut(table, limit - 1)) == count:
        limit -= 1
    if count == 1:
        return [table]
    return [
        replace(
            table,
            label=f"{table.label}-part-{number}",
            title=f"{table.title} (part {number} of {count})",
            rows=rows,
        )
        for number, rows in enumerate(_cut(table, limit), start=1)
    ]


def _cut(table: Table, limit: float) -> list[tuple[Row, ...]]:
    """Return the rows in pieces of at most `limit` lines, the baseline's row first in each."""
    first = table.rows[:1] if table.rows and table.rows[0].mark == "baseline" else ()
    pieces: list[list[Row]] = [[]]
    for row in table.rows[len(first) :]:
        if pieces[-1] and _lines(table, (*first, *pieces[-1], row)) > limit:
            pieces.append([])
        pieces[-1].append(row)
    return [(*first, *piece) for piece in pieces]


def _groups_a_line(table: Table) -> int:
    heads = [table.corner, *(row.head for row in table.rows)]
    texts = [value.text.replace(" ± ", "±") for row in table.rows for value in row.values]
    head = CHARACTER * max(len(text) for text in heads)
    group = CHARACTER * max((len(text) for text in (*texts, *table.headings)), default=1) + GAP
    return max(int((WIDTH - head) / group), 1)


def _lines(table: Table, rows: Sequence[Row]) -> float:
    """Return how many lines some rows and their notes take."""
    names = max((len(table.lines(row)) for row in rows), default=1)
    notes = replace(table, rows=tuple(rows)).footnotes()
    under = sum(1 + len(note) // NOTE_CHARACTERS for note in notes)
    return len(rows) * (names + 0.5) + 1.3 * under
