"""The paper's numbers that stand beside an arm's: which printed row it repeats, and what is wrong.

An arm repeats the row of its name, with its setting or without, else that of its name in the file.
"""

import math
from dataclasses import dataclass

from bam_lab.report.blocks import AVERAGE
from bam_lab.report.evidence import Evidence
from bam_lab.report.settings import shown
from bam_lab.report.table import Column, Row, Table, Value, nothing
from bam_lab.spec.published import PublishedRow, PublishedTable, Tables


@dataclass(frozen=True)
class Printed:
    """Hold one printed number and what our file says is wrong with it (empty: nothing)."""

    value: float
    note: str


def printed_number(
    evidence: Evidence, published: Tables, arm: str, domain: str, measure: str
) -> Printed | None:
    """Return what was printed for an arm; None where nothing was."""
    for table in published:
        row, key = printed_row(evidence, table, arm), table.key(domain, measure)
        value = row.values.get(key) if row else None
        if row is not None and value is not None:
            note = table.note(row, key)
            return Printed(value, f"{table.place}, {row.name}: {note}" if note else "")
    return None


def printed_gap(evidence: Evidence, published: Tables, arm: str, place: str) -> Printed | None:
    """Return the mean log of printed perplexities over the baseline's; None where one lacks."""
    for table in published:
        logs: list[float] = []
        notes: list[str] = []
        for domain in printed_domains(evidence, table) if place == AVERAGE else (place,):
            names = (arm, evidence.baseline_of(arm))
            mine, base = (
                printed_number(evidence, (table,), name, domain, "perplexity") for name in names
            )
            if mine is None or base is None:
                break
            logs.append(math.log(mine.value / base.value))
            notes += [mine.note, base.note]
        else:
            note = " ".join(dict.fromkeys(filter(None, notes)))
            return Printed(math.fsum(logs) / len(logs), note) if logs else None
    return None


def printed_domains(evidence: Evidence, table: PublishedTable) -> tuple[str, ...]:
    """Return the domains of a printed average: ours where it has them, else the paper's own."""
    ours = all(table.key(domain, "perplexity") for domain in evidence.domains)
    return evidence.domains if ours else table.domains("perplexity")


def printed_row(evidence: Evidence, table: PublishedTable, arm: str) -> PublishedRow | None:
    """Return the printed row that an arm repeats; None where none was printed."""
    names = dict.fromkeys((arm, shown(arm), evidence.arm(arm).base))
    rows = (table.row(name, printed_match(evidence)) for name in names if name)
    return next((row for row in rows if row), None)


def printed_match(evidence: Evidence) -> str:
    """Return what the papers call our match: compute (`flops`) or data (`tokens`).

    BAM matched TPU core-days, which both FLOPs and device time stand for; parameters and inference
    are matched at equal tokens.
    """
    return "flops" if evidence.match_on in ("flops", "device-time") else "tokens"


def whole_table(table: PublishedTable) -> Table:
    """Return a printed table as it was printed, what is wrong with a number beside it."""
    rows = []
    for row in table.rows:
        values = []
        for key in table.columns:
            number = row.values.get(key)
            if number is None:
                values.append(nothing("not printed"))
                continue
            text = f"{number:,.{_digits(table, key)}f}"
            values.append(Value(text, number, note=table.note(row, key)))
        rows.append(Row(row.name, tuple(values), note=row.note))
    return Table(
        label=f"printed-{table.id}",
        title=f"{table.paper} {table.version}, {table.place}: {table.title}",
        caption=" ".join([f"{table.setting}.", *_units(table), *_elsewhere(table), *table.notes]),
        corner="as printed",
        columns=tuple(Column(column.name) for column in table.columns.values()),
        rows=tuple(rows),
    )


def _digits(table: PublishedTable, key: str) -> int:
    """Return the most decimals that a column's numbers have."""
    texts = [str(row.values[key]) for row in table.rows if key in row.values]
    return max(len(text.partition(".")[2].rstrip("0")) for text in texts)


def _elsewhere(table: PublishedTable) -> list[str]:
    return [f"{number} in the {version}." for version, number in table.numbers.items()]


def _units(table: PublishedTable) -> list[str]:
    """Say the columns' units, one sentence a unit."""
    by_unit: dict[str, list[str]] = {}
    for column in table.columns.values():
        by_unit.setdefault(column.unit, []).append(column.name)
    if len(by_unit) == 1:
        return [f"In {unit}." for unit in by_unit if unit]
    return [f"In {unit}: {', '.join(names)}." for unit, names in by_unit.items() if unit]
