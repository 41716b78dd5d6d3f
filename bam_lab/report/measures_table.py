"""The measures that a spec asks for beside losses (`report.columns: [measure/NAME]`), by arm."""

import math
from collections.abc import Sequence

from bam_lab.report.blocks import missing_reason
from bam_lab.report.evidence import Evidence, MeasureCell
from bam_lab.report.printed import printed_number
from bam_lab.report.scope import number
from bam_lab.report.table import Column, Row, Table, Value, hoist, missing
from bam_lab.report.tables import arms_in_order, mark_of, paper_value
from bam_lab.spec.measures import MEASURES, Measure, MeasureName, unmeasured
from bam_lab.spec.published import Tables

PREFIX = "measure/"
BETTER = {"lower": "lower is better", "higher": "higher is better", "none": "neither is better"}


def measures_table(evidence: Evidence, published: Tables) -> Table | None:
    """Return the measures, the paper's beside ours where printed; None where none is asked for."""
    places = [place for name in asked_for(evidence) for place in _places(evidence, name)]
    if not places:
        return None
    printed = {
        (name, domain)
        for name, domain in places
        if any(table.key(domain, name) for table in published)
    }
    columns = []
    for name, domain in places:
        title = f"{name} {domain}".replace("_", " ").strip()
        columns.append(Column("ours", title))
        if (name, domain) in printed:
            columns.append(Column("paper", title, dim=True))
    rows = []
    for arm in arms_in_order(evidence):
        values = []
        for name, domain in places:
            values.append(measure_value(evidence, arm, name, domain))
            if (name, domain) in printed:
                found = printed_number(evidence, published, arm, domain, name)
                values.append(paper_value(found, ",.6g"))
        row = Row(arm, tuple(values), mark_of(evidence, arm))
        rows.append(hoist(row) if all(value.note for value in values) else row)
    return Table(
        label="measures",
        title="Measures",
        caption=_caption(evidence),
        corner="arm",
        columns=tuple(columns),
        rows=tuple(rows),
    )


def asked_for(evidence: Evidence) -> tuple[MeasureName, ...]:
    """Return the measures among the report's columns."""
    columns = [text.removeprefix(PREFIX) for text in evidence.ablation["report"]["columns"]]
    return tuple(name for name in MEASURES if name in columns)


def measure_value(evidence: Evidence, arm: str, name: MeasureName, domain: str = "") -> Value:
    """Return the mean over replicates with its standard deviation, or why there is none."""
    own = [
        cell
        for cell in evidence.measures
        if (cell.arm, cell.measure, cell.domain) == (arm, name, domain)
    ]
    found = [cell.value for cell in own if cell.value is not None]
    if not found:
        return missing(_why_not(evidence, arm, name, own))
    mean = math.fsum(found) / len(found)
    text = shown_measure(mean, MEASURES[name])
    if len(found) > 1:
        spread = math.sqrt(math.fsum((v - mean) ** 2 for v in found) / (len(found) - 1))
        text = f"{text} ± {shown_measure(spread, MEASURES[name])}"
    runs = tuple(dict.fromkeys(run for cell in own for run in cell.runs))
    return Value(text, mean, runs=runs)


def shown_measure(value: float, measure: Measure) -> str:
    """Return a value as its table shows it: counts with a suffix, shares with three decimals."""
    if measure.margin is not None:
        return f"{value:.3f}"
    return number(value) if abs(value) >= 1000 else f"{value:.4g}"


def _why_not(evidence: Evidence, arm: str, name: MeasureName, own: Sequence[MeasureCell]) -> str:
    told = (cell.missing for cell in own if cell.missing)
    reasons = (unmeasured(name), *told, missing_reason(evidence, arm, evidence.domains))
    return next(filter(None, reasons), f"{name} does not apply")


def _places(evidence: Evidence, name: MeasureName) -> list[tuple[MeasureName, str]]:
    """Return a measure once, or once for each domain or task that there is a value of."""
    domains = dict.fromkeys(cell.domain for cell in evidence.measures if cell.measure == name)
    return [(name, domain) for domain in domains or ("",)]


def _caption(evidence: Evidence) -> str:
    lines = []
    for name in asked_for(evidence):
        measure = MEASURES[name]
        unit = f", {measure.unit}" if measure.unit else ""
        lines.append(f"{name.replace('_', ' ')}: {measure.title}{unit}; {BETTER[measure.better]}.")
    if evidence.replicates > 1:
        lines.append("Mean ± standard deviation over replicates; arithmetic has none.")
    return " ".join(lines)
