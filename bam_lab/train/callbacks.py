"""What happens around each step: metrics, progress, checkpoints, and the stop at a lost loss."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from bam_lab.errors import Diverged
from bam_lab.record import metrics
from bam_lab.train import resume
from bam_lab.train.module import TrainedModule

Validate = Callable[[], dict[str, float]]
Watch = Callable[[resume.Decisions], tuple[dict[str, float], resume.Decisions]]
"""From the decisions of the validation before to kind of router -> churn since, and those of now.

Without a validation before, or a router, there is no churn."""

MAXIMA = ("loss_max", "grad_norm_max")
"""What a row has the largest of, over the steps since the row before; the rest are means."""


class Progress(NamedTuple):
    """Say how far a phase is."""

    step: int
    steps: int
    tokens_per_s: float
    seconds_left: float


class Recorder(Callback):
    """Write `metrics.jsonl`, report progress, stop at a loss that is not finite.

    Every rank checks and reports; the first one writes and validates.
    """

    def __init__(
        self,
        folder: Path,
        every: int,
        progress: Callable[[Progress], None],
        validate: Validate,
        validate_every: int,
        watch: Watch,
    ):
        """Write into `folder` a row every `every` steps; `validate_every` 0 is never."""
        self.path = folder / metrics.NAME
        self.every, self.progress = every, progress
        self.validate, self.validate_every = validate, validate_every
        self.watch = watch
        self.sums: dict[str, float] = {}
        self.decisions: resume.Decisions = {}
        self.last_checkpoint: int | None = None
        self._started, self._row_started = 0.0, 0.0
        self._tokens, self._row_tokens = 0, 0
        self._passes: list[dict[str, Tensor]] = []

    @property
    def unfinished(self) -> bool:
        """Return whether a step waits for further passes."""
        return bool(self._passes)

    def on_train_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        """Start the clocks."""
        self._started = self._row_started = time.monotonic()

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: Any,
        outputs: Any,
        batch: Tensor,
        batch_idx: int,
    ) -> None:
        """Check, add up, write, report, once a step is whole."""
        module: TrainedModule = pl_module
        step, training = module.first_step + trainer.global_step, module.training_settings
        self._passes.append(outputs["metrics"])
        if len(self._passes) < module.spread.accumulate:
            return
        values = _means(self._passes, module.spread.ranks)
        self._passes = []
        # The gradient too: it has already spoiled the weights that would be checkpointed.
        if not math.isfinite(values["loss"] + module.grad_norm):
            raise Diverged(step, training.lr(step - 1), self.last_checkpoint)
        tokens = batch.shape[0] * (batch.shape[1] - 1) * module.spread.parts
        self._tokens += tokens
        self._row_tokens += tokens
        self._add(values, module.grad_norm)
        first = module.spread.rank == 0
        if first and (step % self.every == 0 or step == training.steps):
            self._write(step, step * tokens, training.lr(step - 1), module.grad_norm)
        if (
            first
            and self.validate_every
            and (step % self.validate_every == 0 or step == training.steps)
        ):
            self._validate(step)
        rate = self._tokens / max(time.monotonic() - self._started, 1e-9)
        left = (training.steps - step) * tokens / rate
        self.progress(Progress(step, training.steps, rate, left))

    def _add(self, values: dict[str, float], grad_norm: float) -> None:
        """Add up one step."""
        for name, value in (values | {"grad_norm_mean": grad_norm, "steps": 1.0}).items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        for name, value in zip(MAXIMA, (values["loss"], grad_norm), strict=True):
            self.sums[name] = max(self.sums.get(name, value), value)

    def _validate(self, step: int) -> None:
        """Write a row about held-out text; the clocks stand still."""
        paused = time.monotonic()
        row: dict[str, Any] = {"step": step, "valid": self.validate()}
        churn, self.decisions = self.watch(self.decisions)
        metrics.append(self.path, row | ({"churn": churn} if churn else {}))
        paused = time.monotonic() - paused
        self._started, self._row_started = self._started + paused, self._row_started + paused

    def _write(self, step: int, tokens: int, lr: float, grad_norm: float) -> None:
        now, steps = time.monotonic(), self.sums.pop("steps")
        maxima = {name: self.sums.pop(name) for name in MAXIMA}
        row: dict[str, float] = {"step": step, "tokens": tokens, "lr": lr}
        row |= {name: total / steps for name, total in self.sums.items()} | maxima
        row["grad_norm"] = grad_norm
        row["tokens_per_s"] = self._row_tokens / max(now - self._row_started, 1e-9)
        metrics.append(self.path, row)
        self.sums, self._row_started, self._row_tokens = {}, now, 0


def _means(passes: list[dict[str, Tensor]], ranks: int) -> dict[str, float]:
    """Return each value's mean over a step's passes and ranks."""
    if len(passes) == ranks == 1:
        return {name: float(value) for name, value in passes[0].items()}
    rows = torch.stack([torch.stack([v.float() for v in values.values()]) for values in passes])
    means = rows.mean(0)
    if ranks > 1:
        torch.distributed.all_reduce(means)
        means /= ranks
    return dict(zip(passes[0], means.tolist(), strict=True))


class Checkpointer(Callback):
    """Save a `ResumeState` every `every` steps and after the last; the first rank does."""

    def __init__(self, folder: Path, every: int, recorder: Recorder, seconds: float):
        """Save into `folder`; `seconds` is the training time before this attempt."""
        self.folder, self.every, self.recorder = folder, every, recorder
        self._before, self._started = seconds, 0.0

    @property
    def seconds(self) -> float:
        """Return the wall time of the training loop, earlier attempts included."""
        return self._before + time.monotonic() - self._started

    def on_train_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        """Start the clock."""
        self._started = time.monotonic()

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: Any,
        outputs: Any,
        batch: Tensor,
        batch_idx: int,
    ) -> None:
        """Save when it is time."""
        module: TrainedModule = pl_module
        step = module.first_step + trainer.global_step
        due = step % self.every == 0 or step == module.training_settings.steps
        if not due or self.recorder.unfinished:
            return
        self.recorder.last_checkpoint = step
        if module.spread.rank > 0:
            return
        metrics.sync(self.recorder.path)
        state = resume.ResumeState(
            step=step,
            model=module.model.state_dict(),
            optimizer=trainer.optimizers[0].state_dict(),
            rng=torch.get_rng_state(),
            seconds=self.seconds,
            sums=self.recorder.sums,
            decisions=self.recorder.decisions,
        )
        resume.save(state, self.folder)
