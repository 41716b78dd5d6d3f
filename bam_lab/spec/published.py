"""The papers' printed numbers as data: one file of `reports/published/` is one printed table.

Nothing here is computed: a printed average stays the printed one, and what is wrong or at odds in
the print is said in notes, of the table, of a row, or of a cell.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from bam_lab.spec.base import Name, SchemaVersion, Spec
from bam_lab.spec.messages import nearest
from bam_lab.spec.reader import Document

MatchName = Literal["tokens", "flops", "any"]


class PublishedColumn(Spec):
    """Describe one printed column.

    Attributes:
        name: the heading as printed.
        metric: the measure, by our name for it where we have one (`perplexity`,
            `task_accuracy`, `params_total`, ...).
        domain: our domain or task group of the column; empty for totals and averages.
        better: which direction is better, where one is.
        mean_of: columns of which this one is said to be the mean; a row where it is not has a
            note in its cell.
        note: what is wrong, or unlike another table's, in every cell.
    """

    name: str
    metric: str
    domain: str = ""
    unit: str = ""
    better: Literal["lower", "higher", "none"]
    mean_of: tuple[str, ...] = ()
    note: str = ""


class PublishedRow(Spec):
    """Hold one printed row.

    Attributes:
        name: the row's label as printed.
        arm: the name that an arm of ours bears when it repeats this row.
        match: the printed row's matching: data (`tokens`), compute (`flops`), or no matter.
        values: column key to printed number; a column that is not there was not printed.
        note: what is wrong with this row's print.
    """

    name: str
    arm: Name
    match: MatchName = "any"
    values: Annotated[dict[str, float], Field(min_length=1)]
    note: str = ""


class CellNote(Spec):
    """Say what is wrong, or at odds, with one printed number.

    Attributes:
        row: the row's `arm`.
        match: the row's `match`.
        column: the column's key.
    """

    row: Name
    match: MatchName = "any"
    column: str
    note: Annotated[str, Field(min_length=1)]


class PublishedTable(Spec):
    """Hold one printed table and its place.

    Attributes:
        version: the paper's version that was read.
        place: where it stands in that version.
        numbers: what other versions call the same table, by version.
        scope: `vision` for a table that is here as data alone: no ablation may name it.
    """

    schema_version: SchemaVersion = Field(alias="schema")
    id: Name
    paper: str
    version: str
    place: str
    numbers: dict[str, str] = Field(default_factory=dict)
    scope: Literal["language", "vision"] = "language"
    title: str
    setting: str
    baseline: Name
    columns: dict[str, PublishedColumn]
    rows: Annotated[tuple[PublishedRow, ...], Field(min_length=1)]
    cell_notes: tuple[CellNote, ...] = ()
    notes: tuple[str, ...] = ()

    def row(self, arm: str, match: str) -> PublishedRow | None:
        """Return the row that `arm` repeats under `match`, or None where none was printed."""
        rows = [row for row in self.rows if row.arm == arm and row.match in (match, "any")]
        return rows[0] if rows else None

    def value(self, arm: str, match: str, domain: str, metric: str) -> float | None:
        """Return one printed number, or None where none was printed."""
        row, key = self.row(arm, match), self.key(domain, metric)
        return row.values.get(key) if row and key else None

    def key(self, domain: str, metric: str) -> str:
        """Return the key of the first column of a domain and metric; empty where there is none."""
        keys = (k for k, c in self.columns.items() if (c.domain, c.metric) == (domain, metric))
        return next(keys, "")

    def domains(self, metric: str) -> tuple[str, ...]:
        """Return the domains that have a column of a metric."""
        found = [c.domain for c in self.columns.values() if c.metric == metric and c.domain]
        return tuple(dict.fromkeys(found))

    def note(self, row: PublishedRow, column: str) -> str:
        """Return what the file says of one printed number; empty where it says nothing."""
        cell = row.arm, row.match, column
        notes = [n.note for n in self.cell_notes if (n.row, n.match, n.column) == cell]
        return notes[0] if notes else self.columns[column].note


Tables = tuple[PublishedTable, ...]
"""The printed tables that an ablation names; the first that has a number is asked."""


def places(tables: Tables) -> str:
    """Return papers, versions and places, each paper once."""
    by_paper: dict[str, list[str]] = {}
    for table in tables:
        by_paper.setdefault(f"{table.paper} {table.version}", []).append(table.place)
    return "; ".join(f"{paper}, {', '.join(at)}" for paper, at in by_paper.items())


def table_problems(document: Document, table: PublishedTable, stem: str) -> Iterator[str]:
    """Check one table against itself."""
    if table.id != stem:
        yield document.problem(
            ("id",), f"must be the file's name {stem!r}, got {table.id!r}. Rename one of the two."
        )
    rows = [(row.arm, row.match) for row in table.rows]
    arms = sorted({arm for arm, _ in rows})
    if table.baseline not in arms:
        yield document.problem(
            ("baseline",),
            f"must be the arm of a row, got {table.baseline!r}. {nearest(table.baseline, arms)}",
        )
    for key, column in table.columns.items():
        for index, part in enumerate(column.mean_of):
            yield from _known_column(document, table, ("columns", key, "mean_of", index), part)
    for index, row in enumerate(table.rows):
        if (row.arm, row.match) in rows[:index]:
            yield document.problem(
                ("rows", index, "arm"),
                f"must be another arm or match than in a row above, got {row.arm!r} with "
                f"{row.match!r}.",
            )
        for key in row.values:
            yield from _known_column(document, table, ("rows", index, "values", key), key)
    yield from _note_problems(document, table)


def _note_problems(document: Document, table: PublishedTable) -> Iterator[str]:
    cells = {(row.arm, row.match): row.values for row in table.rows}
    seen = set()
    for index, note in enumerate(table.cell_notes):
        place, cell = ("cell_notes", index), (note.row, note.match)
        if cell not in cells:
            known = ", ".join(f"{arm} ({match})" for arm, match in cells)
            yield document.problem(
                (*place, "row"),
                f"must be a row's arm and match, got {note.row} ({note.match}). Rows: {known}.",
            )
        elif note.column not in cells[cell]:
            yield document.problem(
                (*place, "column"),
                f"must be a number that the row has, got {note.column!r}. "
                f"{nearest(note.column, cells[cell])}",
            )
        elif (*cell, note.column) in seen:
            yield document.problem(place, "must be a cell that has no note above. Join the two.")
        seen.add((*cell, note.column))


def _known_column(
    document: Document, table: PublishedTable, loc: tuple[str | int, ...], key: str
) -> Iterator[str]:
    if key not in table.columns:
        yield document.problem(loc, f"must be a column, got {key!r}. {nearest(key, table.columns)}")
