"""A table as data, and its four renderings: HTML, LaTeX (booktabs), CSV, terminal.

Libraries were tried and lost (their LaTeX drops bold, or leaves text unescaped); this is small.
A cell knows which runs made it, in every rendering that can carry it.
"""

import csv
import io
import re
from dataclasses import dataclass, field, replace
from textwrap import wrap
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable
from rich.text import Text

Align = Literal["left", "right"]


@dataclass(frozen=True)
class Value:
    """Hold one cell.

    Attributes:
        text: what is shown.
        number: the unrounded number behind it, for CSV and JSON; None where there is none.
        home: whether this is a model's own domain; shown shaded.
        runs: store keys of the stages that made it.
        note: a footnote, shown under the table and marked here.
        title: what hovering says.
    """

    text: str
    number: float | None = None
    bold: bool = False
    dim: bool = False
    home: bool = False
    runs: tuple[str, ...] = ()
    note: str = ""
    title: str = ""

    @property
    def hover(self) -> str:
        """Return what hovering says, runs included."""
        made = f"runs: {', '.join(self.runs)}" if self.runs else ""
        return "; ".join(part for part in (self.title, made) if part)


@dataclass(frozen=True)
class Column:
    """Hold one column; columns of the same `group` stand under one heading."""

    name: str
    group: str = ""
    align: Align = "right"
    dim: bool = False


@dataclass(frozen=True)
class Row:
    """Hold one row; `mark` is `baseline`, `unranked`, `external` (no arm) or nothing."""

    head: str
    values: tuple[Value, ...]
    mark: Literal["", "baseline", "unranked", "external"] = ""
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Hold one table.

    Attributes:
        label: a stable name: anchor in HTML, `tab:...` in LaTeX.
        corner: the heading of the row heads.
    """

    label: str
    title: str
    caption: str
    corner: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())

    def groups(self) -> list[tuple[str, int]]:
        """Return (heading, width) of neighbouring columns under one heading."""
        spans: list[tuple[str, int]] = []
        for column in self.columns:
            if spans and spans[-1][0] == column.group:
                spans[-1] = (column.group, spans[-1][1] + 1)
            else:
                spans.append((column.group, 1))
        return spans

    @property
    def grouped(self) -> bool:
        """Return whether any column stands under a group heading."""
        return any(column.group for column in self.columns)

    @property
    def headings(self) -> list[str]:
        """Return what stands above the columns of `lines`: the groups, else the columns' names."""
        return list(dict.fromkeys(c.group if self.grouped else c.name for c in self.columns))

    def lines(self, row: Row) -> list[tuple[str, list[Value]]]:
        """Return a row as one line for each column name, the groups as columns.

        Narrow enough for a page or a terminal, where the columns side by side are not. A group
        without a column of the name has an empty cell there.
        """
        if not self.grouped:
            return [("", list(row.values))]
        pairs = zip(self.columns, row.values, strict=True)
        cells = {(column.name, column.group): value for column, value in pairs}
        names = dict.fromkeys(column.name for column in self.columns)
        return [
            (name, [cells.get((name, group), Value("")) for group in self.headings])
            for name in names
        ]

    def footnotes(self) -> list[str]:
        """Return the distinct notes of rows and cells, in reading order."""
        notes = []
        for row in self.rows:
            notes += [row.note, *(value.note for value in row.values)]
        return list(dict.fromkeys(note for note in notes if note))

    def mark(self, note: str) -> str:
        """Return the letter of a footnote; empty for no note."""
        if not note:
            return ""
        index = self.footnotes().index(note)
        return chr(ord("a") + index) if index < 26 else f"n{index + 1}"


MISSING = "--"


def missing(reason: str) -> Value:
    """Return the cell of a number that is not there, with its reason."""
    return Value(MISSING, dim=True, note=reason)


def nothing(title: str = "") -> Value:
    """Return the cell of a number that nobody printed or that has no meaning here."""
    return Value(MISSING, dim=True, title=title)


def to_csv(tables: list[Table]) -> str:
    """Return all cells of some tables, tidy: one line a cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["table", "row", "group", "column", "text", "value", "note", "runs"])
    for table in tables:
        for row in table.rows:
            for column, value in zip(table.columns, row.values, strict=True):
                number = "" if value.number is None else repr(value.number)
                note = "; ".join(part for part in (row.note, value.note) if part)
                place = [table.label, row.head, column.group, column.name]
                line = [*place, value.text, number, note, " ".join(value.runs)]
                writer.writerow([_no_formula(text) for text in line])
    return out.getvalue()


_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"--|[+-]?[0-9][0-9.e+-]*( ± [0-9.]+)?")


def _no_formula(text: str) -> str:
    """Return text that a spreadsheet does not run: names and licences are the user's."""
    harmless = not _FORMULA.match(text) or _NUMBER.fullmatch(text)
    return text if harmless else f"'{text}"


HEAD_WIDTH = 16
"""Characters of a row's head in a terminal; the rest of 80 columns is the numbers'."""


def to_rich(table: Table) -> RichTable:
    """Return the table for a terminal: the columns of a group one under another in one cell."""
    under = " / ".join(dict.fromkeys(column.name for column in table.columns if column.group))
    title = f"{table.title}\n({under})" if " / " in under else table.title
    shown = RichTable(
        title=Text(title), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    shown.add_column(Text(table.corner), overflow="fold")
    groups = table.groups() if table.grouped else [(c.name, 1) for c in table.columns]
    for heading, _ in groups:
        shown.add_column(Text(heading), justify="right", overflow="fold")
    for row in table.rows:
        # Wrapped here, at hyphens too: rich would break a long name anywhere.
        cells = [Text("\n".join(wrap(row.head + _bracketed(table, row.note), HEAD_WIDTH)))]
        values = iter(row.values)
        for _, width in groups:
            lines = [_line(table, next(values)) for _ in range(width)]
            cells.append(Text("\n").join(lines))
        shown.add_row(*cells)
    notes = [f"[{table.mark(note)}] {note}" for note in table.footnotes()]
    if notes:
        shown.caption = Text("\n".join(notes))
        shown.caption_justify = "left"
    return shown


def _line(table: Table, value: Value) -> Text:
    style = "bold" if value.bold else "dim" if value.dim else ""
    text = value.text.replace(" ± ", "±") + _bracketed(table, value.note)
    return Text(text, style=style)


def _bracketed(table: Table, note: str) -> str:
    return f" [{table.mark(note)}]" if note else ""


def hoist(row: Row) -> Row:
    """Move a note that all noted cells share to the row's head, where the row has none yet."""
    notes = {value.note for value in row.values if value.note}
    if row.note or len(notes) != 1:
        return row
    values = tuple(replace(value, note="") for value in row.values)
    return replace(row, values=values, note=notes.pop())


def told(row: Row, value: Value) -> Value:
    """Return a row's cell for another table: it takes the row's note and standing with it."""
    return replace(value, note=value.note or row.note, dim=value.dim or row.mark == "unranked")
