"""The papers' printed numbers as data: one file of `reports/published/` is one printed table.

Nothing here is computed: a printed average stays the printed one, and what is wrong or at odds in
the print is said in `notes`.
"""

from typing import Literal

from pydantic import Field

from bam_lab.spec.base import Name, SchemaVersion, Spec

MatchName = Literal["tokens", "flops", "any"]


class PublishedColumn(Spec):
    """Describe one printed column.

    Attributes:
        name: the heading as printed.
        metric: `perplexity`, `accuracy`, `parameters`, `flops`, ...
        domain: our domain or task group of the column; empty for totals and averages.
        better: which direction is better, where one is.
    """

    name: str
    metric: str
    domain: str = ""
    unit: str = ""
    better: Literal["lower", "higher", "none"]


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
    values: dict[str, float]
    note: str = ""


class PublishedTable(Spec):
    """Hold one printed table and its place."""

    schema_version: SchemaVersion = Field(alias="schema")
    id: Name
    paper: str
    version: str
    place: str
    title: str
    setting: str
    baseline: Name
    columns: dict[str, PublishedColumn]
    rows: tuple[PublishedRow, ...]
    notes: tuple[str, ...] = ()

    def row(self, arm: str, match: str) -> PublishedRow | None:
        """Return the row that `arm` repeats under `match`, or None where none was printed."""
        rows = [row for row in self.rows if row.arm == arm and row.match in (match, "any")]
        return rows[0] if rows else None

    def value(self, arm: str, match: str, domain: str, metric: str) -> float | None:
        """Return one printed number, or None where none was printed."""
        row = self.row(arm, match)
        keys = [k for k, c in self.columns.items() if (c.domain, c.metric) == (domain, metric)]
        return row.values.get(keys[0]) if row and keys else None
