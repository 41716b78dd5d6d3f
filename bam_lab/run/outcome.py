"""What goes into a run of a graph beside the graph, and what comes out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from bam_lab.errors import EXIT_STAGE_FAILED
from bam_lab.record.numerics import Numerics
from bam_lab.run.pool import COMMAND
from bam_lab.run.stage import Stage

State = Literal["waiting", "running", "elsewhere", "done", "failed", "missing"]


class Watcher(Protocol):
    """Hear how the graph goes (`run/progress.py`)."""

    def state(self, stage: Stage, state: State, reason: str = "") -> None:
        """Take a stage's new state."""

    def progress(self, stage: Stage, message: dict[str, Any]) -> None:
        """Take a running stage's progress."""


@dataclass(frozen=True)
class Settings:
    """Hold what changes how the graph runs, and no number.

    Attributes:
        workers: stages at once at most; None for as many as the cores take.
        command: how a worker process is started.
        whole: whether stages that were imported without their text are made again all the same.
    """

    numerics: Numerics
    workers: int | None = None
    command: Sequence[str] = COMMAND
    whole: bool = False


@dataclass(frozen=True)
class Failure:
    """Say why a stage has no result.

    Attributes:
        missing: it was not tried, because a stage before it failed.
        exit_code: 2 when the user can mend it.
    """

    reason: str
    missing: bool = False
    exit_code: int = EXIT_STAGE_FAILED


@dataclass(frozen=True)
class GraphRun:
    """Say how a graph went.

    Attributes:
        finished: stages that this program did.
        failures: fingerprint -> failure, of the stages that failed or are missing because of one.
    """

    finished: int
    failures: dict[str, Failure]
