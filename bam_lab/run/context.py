"""What a stage function gets, and how it tells how far it is."""

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bam_lab.record.numerics import Numerics


@dataclass(frozen=True)
class Progress:
    """Say how far a stage is; `step` of `steps`, in whatever the stage counts."""

    step: int
    steps: int
    tokens_per_s: float | None = None
    seconds_left: float | None = None
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it as a message."""
        return asdict(self)


class Stopped(Exception):
    """Leave a stage early because the user asked; its checkpoint stays."""


@dataclass(frozen=True)
class StageContext:
    """Hold what a stage function needs.

    Attributes:
        inputs: role -> folder of the finished stage that gives it.
        work: the folder to fill; what an interrupted attempt left is still in it.
        facts: what the function adds to the manifest.
        report: takes `Progress`; cheap, so call it every step.
        stop: set when the user wants the program to end; leave by raising `Stopped`.
    """

    name: str
    label: str
    spec: dict[str, Any]
    inputs: dict[str, Path]
    settings: dict[str, Any]
    threads: int
    work: Path
    cache: Path
    numerics: Numerics
    facts: dict[str, Any]
    report: Callable[[Progress], None]
    stop: threading.Event

    def check_stop(self) -> None:
        """Raise `Stopped` when the user wants the program to end."""
        if self.stop.is_set():
            raise Stopped


StageFunction = Callable[[StageContext], None]


class Speed:
    """Measure tokens a second and time left over the last few seconds of a stage."""

    def __init__(self, steps: int, tokens_a_step: int):
        """Measure a stage of `steps` steps."""
        self._steps, self._tokens = steps, tokens_a_step
        self._marks: list[tuple[float, int]] = []

    def at(self, step: int) -> Progress:
        """Return the progress after `step` steps."""
        now = time.monotonic()
        self._marks = [*self._marks[-31:], (now, step)]
        first_time, first_step = self._marks[0]
        if now <= first_time or step == first_step:
            return Progress(step, self._steps)
        a_second = (step - first_step) / (now - first_time)
        return Progress(step, self._steps, a_second * self._tokens, (self._steps - step) / a_second)
