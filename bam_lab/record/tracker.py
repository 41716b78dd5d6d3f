"""The tracker protocol: who else hears what a run logs.

The store's JSONL is the record; every other tracker is a mirror of it, fed here while training
goes, or from the store afterwards. A mirror that fails must not fail the run.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from bam_lab.record import metrics


class Tracker(Protocol):
    """Hear the rows of one stage."""

    def log(self, row: Mapping[str, Any]) -> None:
        """Take one row of `metrics.jsonl`."""

    def close(self) -> None:
        """Flush and let go."""


class JSONLTracker:
    """Append rows to a stage's `metrics.jsonl`: the record itself."""

    def __init__(self, folder: Path):
        """Write into the stage folder `folder`."""
        self._path = folder / metrics.NAME

    def log(self, row: Mapping[str, Any]) -> None:
        """Append one row."""
        metrics.append(self._path, dict(row))

    def close(self) -> None:
        """Flush to disk."""
        metrics.sync(self._path)
