"""The sections of a report on tasks and probes, where an ablation asks for them."""

from dataclasses import dataclass, replace

from bam_lab.report.evidence import Evidence
from bam_lab.report.probes import probe_lines, probe_tables
from bam_lab.report.settings import views
from bam_lab.report.table import Table
from bam_lab.report.tasks import suite_results

_PAPER = ("tasks", "task-gains", "task-groups", "completions", "completion-grid", "needles")
"""Labels, or their beginnings, of the tables that a paper would print."""


@dataclass(frozen=True)
class Part:
    """Hold tables under one heading, and sentences under them."""

    heading: str
    tables: tuple[Table, ...]
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """Hold one section of the page."""

    anchor: str
    title: str
    parts: tuple[Part, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """Return all tables in their order."""
        return tuple(table for part in self.parts for table in part.tables)

    @property
    def main(self) -> tuple[Table, ...]:
        """Return the tables that a paper would print."""
        return tuple(table for table in self.tables if table.label.startswith(_PAPER))


def sections_of(evidence: Evidence) -> tuple[Section, ...]:
    """Return the sections that there is something for."""
    made = (
        Section("tasks-section", "Tasks", _suites(evidence)),
        Section("probes-section", "Probes", _probes(evidence)),
    )
    return tuple(section for section in made if section.parts)


def _suites(evidence: Evidence) -> tuple[Part, ...]:
    parts = []
    for found in suite_results(evidence):
        source = f", {found.suite.source}" if found.suite.source else ""
        under = f", {found.setting}" if found.setting else ""
        heading = f"Suite {found.suite.name}: {found.suite.title}{source}{under}"
        parts.append(Part(heading, found.tables, found.lines))
    return tuple(parts)


def _probes(evidence: Evidence) -> tuple[Part, ...]:
    parts = []
    for setting, view in views(evidence):
        tables = probe_tables(view)
        if setting:
            tables = [
                replace(t, label=f"{t.label}-{setting}", title=f"{t.title} ({setting})")
                for t in tables
            ]
        if tables:
            parts.append(Part(setting, tuple(tables), tuple(probe_lines(view))))
    return tuple(parts)
