"""Small graphs of fake stages."""

import sys
from pathlib import Path
from typing import Any

from bam_lab.record.numerics import Numerics
from bam_lab.run.outcome import Settings
from bam_lab.run.stage import Graph, Stage, identify

COMMAND = (sys.executable, str(Path(__file__).parent / "fake_worker.py"))
SETTINGS = Settings(Numerics("float32", "cpu"), command=COMMAND)


def stage(
    label: str, attempts: Path, *, needs: tuple[Stage, ...] = (), do: str = "sleep", **spec: Any
) -> Stage:
    """Return a fake stage."""
    threads = spec.pop("threads", 1)
    spec = {"do": do, "label": label, "seconds": 0.05, **spec}
    inputs = {f"input{i}": need.fingerprint for i, need in enumerate(needs)}
    return Stage(
        name="mixture",
        label=label,
        spec=spec,
        inputs=inputs,
        fingerprint=identify("mixture", spec, inputs),
        threads=threads,
        seconds=1.0,
        role="mixture",
        settings={"attempts": str(attempts)},
    )


def graph(*stages: Stage) -> Graph:
    """Return the graph of the stages, inputs first."""
    return Graph({s.fingerprint: s for s in stages}, True, stages[0])


class Recorder:
    """Remember what a watcher hears."""

    def __init__(self) -> None:
        self.states: list[tuple[str, str, str]] = []

    def state(self, stage: Stage, state: str, reason: str = "") -> None:
        self.states.append((stage.label, state, reason))

    def progress(self, stage: Stage, message: dict[str, Any]) -> None:
        self.states.append((stage.label, f"step {message['step']}", ""))
