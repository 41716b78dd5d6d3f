"""Train one phase, from the start or from where an interrupted attempt stopped."""

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import lightning
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment

from bam_lab.data.tokens.batches import Batches
from bam_lab.data.tokens.datamodule import BatchesDataModule
from bam_lab.record import metrics
from bam_lab.train import resume
from bam_lab.train.callbacks import Checkpointer, Progress, Recorder, Validate
from bam_lab.train.module import TrainedModule
from bam_lab.train.numerics import prepare

Precision = Literal["bf16-mixed", "float32"]


@dataclass(frozen=True)
class Fitted:
    """Say what a phase took.

    Attributes:
        seconds: wall time of the training loop, interrupted attempts up to their last checkpoint
            included.
        resumed_from: the step at which this attempt began; 0 from the start.
    """

    steps: int
    tokens: int
    seconds: float
    resumed_from: int


def fit(
    module: TrainedModule,
    batches: Batches,
    *,
    workdir: Path,
    precision: Precision,
    device: Literal["cpu", "cuda"],
    threads: int,
    checkpoint_every: int,
    log_every: int = 10,
    progress: Callable[[Progress], None] = lambda progress: None,
    validate: Validate = dict,
    validate_every: int = 0,
) -> Fitted:
    """Train `module` to its last step and leave it trained.

    Step i takes `batches.batch(i)`. `metrics.jsonl` and `resume.pt` are written into `workdir`; the
    latter, when it is there, is where training continues, to the same bits. `progress` is called
    after every step and may raise to stop. `validate` gives domain -> nats.

    Raises:
        Diverged: the loss is NaN or infinite.
    """
    prepare(threads)
    state = resume.load(workdir)
    recorder = Recorder(workdir, log_every, progress, validate, validate_every)
    steps, first = module.training_settings.steps, 0
    if state is not None:
        first = state.step
        module.model.load_state_dict(state.model)
        recorder.sums, recorder.last_checkpoint = dict(state.sums), first
    metrics.cut(workdir / metrics.NAME, first)
    module.first_step = first
    before = state.seconds if state else 0.0
    checkpointer = Checkpointer(workdir, checkpoint_every, recorder, before)
    callbacks = [_Continue(state), recorder, checkpointer] if state else [recorder, checkpointer]
    if first < steps:
        trainer = _trainer(steps - first, precision, device, callbacks)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Lightning's advice on loaders, loggers and devices.
            trainer.fit(module, BatchesDataModule(batches, steps, first))
    tokens = steps * batches.batch_sequences * batches.seq_len
    return Fitted(steps, tokens, checkpointer.seconds if first < steps else before, first)


class _Continue(lightning.Callback):
    """Put back the optimizer and the random state, once Lightning has made the optimizer."""

    def __init__(self, state: resume.ResumeState):
        self.state = state

    def on_train_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule
    ) -> None:
        trainer.optimizers[0].load_state_dict(self.state.optimizer)
        torch.set_rng_state(self.state.rng)


def _trainer(
    steps: int, precision: Precision, device: str, callbacks: list[lightning.Callback]
) -> lightning.Trainer:
    """Return a Trainer that only trains: no logger, checkpoint, bar, validation, advertisement."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lightning.Trainer(
            accelerator="gpu" if device == "cuda" else "cpu",
            devices=1,
            precision="bf16-mixed" if precision == "bf16-mixed" else "32-true",
            max_steps=steps,
            max_epochs=-1,
            callbacks=callbacks,
            plugins=[LightningEnvironment()],  # else it looks for Slurm and takes its signals
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            limit_val_batches=0,
        )
