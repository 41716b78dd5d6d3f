"""Show how the graph goes: a bar a running stage and one for all; plain lines off a terminal."""

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

from bam_lab.run.outcome import State
from bam_lab.run.stage import Graph, Stage

PLAIN_SECONDS = 15.0


def duration(seconds: float) -> str:
    """Return seconds as `1:02:03` or `2:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def describe(message: dict[str, Any]) -> str:
    """Return a stage's progress as text: tokens a second and time left, where known."""
    parts = []
    if message.get("tokens_per_s"):
        parts.append(f"{message['tokens_per_s']:,.0f} tokens/s")
    if message.get("seconds_left") is not None:
        parts.append(f"{duration(message['seconds_left'])} left")
    if message.get("note"):
        parts.append(message["note"])
    return ", ".join(parts)


class Whole:
    """Estimate the time left of the whole graph from the stages' guessed seconds.

    The guesses give the shares; the speed is what this run has measured so far.
    """

    def __init__(self, graph: Graph):
        """Take every stage as not begun."""
        self._stages = graph.stages
        self._share: dict[str, float] = dict.fromkeys(graph.stages, 0.0)
        self._began = time.monotonic()
        self._skipped = 0.0

    def set(self, fingerprint: str, share: float, skipped: bool = False) -> None:
        """Say which share of a stage is done; `skipped` when this run did not do it."""
        self._share[fingerprint] = share
        if skipped:
            self._skipped += self._stages[fingerprint].seconds

    @property
    def total(self) -> float:
        """Guessed seconds of all stages."""
        return sum(stage.seconds for stage in self._stages.values())

    @property
    def done(self) -> float:
        """Guessed seconds of what is done."""
        return sum(self._share[f] * stage.seconds for f, stage in self._stages.items())

    def seconds_left(self) -> float | None:
        """Return the time left, or None while too little is done to say."""
        mine = self.done - self._skipped
        elapsed = time.monotonic() - self._began
        if mine < 0.01 * self.total or elapsed < 5:
            return None
        return (self.total - self.done) * elapsed / mine


class Display:
    """Watch a graph on a console; use it as a context manager."""

    def __init__(self, graph: Graph, console: Console, quiet: bool = False):
        """Prepare the bars; nothing is drawn before `with`."""
        self._graph, self._console, self._quiet = graph, console, quiet
        self._whole = Whole(graph)
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._begun: dict[str, float] = {}
        self._told: dict[str, float] = {}
        self._finished = 0

    def __enter__(self) -> Self:
        """Start drawing."""
        if self._console.is_terminal and not self._quiet:
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TaskProgressColumn(),
                TextColumn("{task.fields[text]}"),
                console=self._console,
                transient=True,
            )
            self._bars.start()
            self._all = self._bars.add_task("all stages", total=self._whole.total, text="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop drawing."""
        if self._bars is not None:
            self._bars.stop()

    def state(self, stage: Stage, state: State, reason: str = "") -> None:
        """Show a stage's new state."""
        key = stage.fingerprint
        if state == "running":
            self._begun[key] = time.monotonic()
            if self._bars is not None:
                self._tasks[key] = self._bars.add_task(stage.label, total=None, text="starting")
            self._say(f"start    {stage.label}")
        elif state in ("done", "failed", "missing"):
            self._end(stage, state, reason)
        elif state == "elsewhere":
            self._say(f"wait     {stage.label}: {reason}")
        elif key in self._tasks:
            self._drop_bar(key)
        self._update_all()

    def _end(self, stage: Stage, state: State, reason: str) -> None:
        key = stage.fingerprint
        self._finished += 1
        self._whole.set(key, 1.0, skipped=key not in self._begun)
        self._drop_bar(key)
        count = f"[{self._finished}/{len(self._graph.stages)}]"
        if state == "done" and key in self._begun:
            took = duration(time.monotonic() - self._begun[key])
            self._say(f"done     {stage.label} in {took} {count}")
        elif state == "failed":
            self._say(f"failed   {stage.label}: {reason} {count}")
        elif state == "missing":  # The cause was told when it happened.
            self._say(f"missing  {stage.label}: {reason.partition(': ')[0]} {count}")

    def _drop_bar(self, key: str) -> None:
        task = self._tasks.pop(key, None)
        if self._bars is not None and task is not None:
            self._bars.remove_task(task)

    def progress(self, stage: Stage, message: dict[str, Any]) -> None:
        """Show how far a stage is."""
        key, step, steps = stage.fingerprint, message["step"], message["steps"]
        self._whole.set(key, step / steps if steps else 0.0)
        text = describe(message)
        if self._bars is not None:
            self._bars.update(self._tasks[key], completed=step, total=steps, text=text)
            self._update_all()
        elif time.monotonic() - self._told.get(key, self._begun[key]) > PLAIN_SECONDS:
            self._told[key] = time.monotonic()
            self._say(f"running  {stage.label}: step {step}/{steps}, {text}{self._left()}")

    def _left(self) -> str:
        left = self._whole.seconds_left()
        return "" if left is None else f"; all stages: {duration(left)} left"

    def _update_all(self) -> None:
        if self._bars is not None:
            left = self._whole.seconds_left()
            text = "" if left is None else f"about {duration(left)} left"
            self._bars.update(self._all, completed=self._whole.done, text=text)

    def _say(self, line: str) -> None:
        if not self._quiet:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)
