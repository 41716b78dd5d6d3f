"""The assumption register: every value that the papers leave open, what we took, and why.

The values are read from the run's own resolved specs, never from this file, so the register cannot
disagree with what ran. `stated` is printed in a paper, `derived` follows from its numbers, `ours`
is a choice of this project.
"""

from dataclasses import replace

from bam_lab.report import (
    assumptions_data,
    assumptions_dense,
    assumptions_methods,
    assumptions_origins,
    assumptions_training,
)
from bam_lab.report.assumption_entry import Assumption
from bam_lab.report.evidence import Evidence
from bam_lab.report.settings import views

ENTRIES = (
    *assumptions_methods.ENTRIES,
    *assumptions_origins.ENTRIES,
    *assumptions_dense.ENTRIES,
    *assumptions_training.ENTRIES,
    *assumptions_data.ENTRIES,
)


def register(evidence: Evidence) -> tuple[Assumption, ...]:
    """Return the register with the values of this run; what no arm has is left out.

    A line whose value is not the same under every setting says each.
    """
    found: dict[str, list[tuple[str, Assumption]]] = {}
    for setting, view in views(evidence):
        for entry in ENTRIES:
            line = entry.line(view)
            if line.value:
                found.setdefault(line.subject, []).append((setting, line))
    return tuple(_together(lines) for lines in found.values())


def _together(lines: list[tuple[str, Assumption]]) -> Assumption:
    """Return one line for all settings; it is ours where it is ours under one of them."""
    values: dict[str, list[str]] = {}
    for setting, line in lines:
        values.setdefault(line.value, []).append(setting)
    shown = next((line for _, line in lines if line.basis == "ours"), lines[0][1])
    if len(values) == 1:
        return shown
    text = "; ".join(f"{value} (under {', '.join(names)})" for value, names in values.items())
    return replace(shown, value=text)
