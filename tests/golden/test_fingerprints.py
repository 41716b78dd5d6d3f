"""Fingerprints of every stage of every shipped ablation, so that a change is seen in review.

`make golden` rewrites the file; the commit says why. A change here means that stores lose what they
hold of these stages.
"""

import os
from pathlib import Path

from bam_lab.run.graph import build_graph
from bam_lab.spec.load import list_ablations, load_ablation

GOLDEN = Path(__file__).parent / "fingerprints.txt"


def fingerprints() -> str:
    """Return a line a stage, under a stand-in for the corpus's digest."""
    lines = []
    for path in list_ablations():
        graph = build_graph(load_ablation(str(path)), 1, "golden")
        lines += [f"{path.stem}: {stage.label}: {stage.key}" for stage in graph.stages.values()]
    return "\n".join(lines) + "\n"


def test_fingerprints_of_shipped_ablations() -> None:
    found = fingerprints()
    if os.environ.get("BAM_LAB_GOLDEN") == "write":
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text(), "run `make golden` if this change is meant, and say why"
