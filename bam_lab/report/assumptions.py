"""The assumption register: every value that the papers leave open, what we took, and why.

The values are read from the run's own resolved specs, never from this file, so the register cannot
disagree with what ran. `stated` is printed in a paper, `derived` follows from its numbers, `ours`
is a choice of this project.
"""

from bam_lab.report import (
    assumptions_data,
    assumptions_dense,
    assumptions_methods,
    assumptions_origins,
    assumptions_training,
)
from bam_lab.report.assumption_entry import Assumption
from bam_lab.report.evidence import Evidence


def register(evidence: Evidence) -> tuple[Assumption, ...]:
    """Return the register with the values of this run; what no arm has is left out."""
    lines = (
        entry.line(evidence)
        for entry in (
            *assumptions_methods.ENTRIES,
            *assumptions_origins.ENTRIES,
            *assumptions_dense.ENTRIES,
            *assumptions_training.ENTRIES,
            *assumptions_data.ENTRIES,
        )
    )
    return tuple(line for line in lines if line.value)
