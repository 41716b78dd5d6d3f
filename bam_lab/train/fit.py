"""Train one phase or a stretch of it.

It begins at its start, at the end of the stretch before, or where an interrupted attempt stopped.

A batch may be spread over the processes of one machine, over passes whose gradients are added up,
or both; what is read, step by step and row by row, stays the same (`data/tokens/datamodule.py`).
What does not stay the same, but to rounding, is said in `module.py`.
"""

import logging
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import lightning
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy

from bam_lab.data.tokens.batches import Batches
from bam_lab.data.tokens.datamodule import BatchesDataModule, Spread
from bam_lab.errors import InputError
from bam_lab.record import metrics
from bam_lab.spec.experts import has_bias, relu_router
from bam_lab.train import resume
from bam_lab.train.callbacks import Checkpointer, Progress, Recorder, Validate, Watch
from bam_lab.train.module import TrainedModule
from bam_lab.train.numerics import prepare

Precision = Literal["bf16-mixed", "float32"]


@dataclass(frozen=True)
class Fitted:
    """Say what a phase, or the stretch of it that was asked for, took.

    Attributes:
        seconds: wall time of the training loop, interrupted attempts up to their last checkpoint
            included.
        resumed_from: the step of the phase at which this attempt began; 0 from its start.
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
    watch: Watch = lambda before: ({}, before),
    ranks: int = 1,
    accumulate: int = 1,
    before: resume.ResumeState | None = None,
) -> Fitted:
    """Train `module` to its last step and leave it trained.

    Step i takes `batches.batch(i)`. `metrics.jsonl` and `resume.pt` are written into `workdir`; the
    latter, when it is there, is where training continues, to the same bits. `progress` is called
    after every step and may raise to stop. `validate` gives domain -> nats, and
    `watch` beside it the churn of routers. `before` is the end of an earlier stretch of the same
    phase: training continues there, to the bits of one run.

    With `ranks` above 1 all of that many processes call this, each with the same arguments and a
    `workdir` that all see; the first one writes. `torchrun --nproc-per-node=RANKS` starts them.
    With `accumulate` above 1 a process takes its share of a batch in that many passes.

    Raises:
        Diverged: the loss is NaN or infinite.
        InputError: a batch does not divide into ranks and passes, the processes are not there, or
            the method moves something by each whole batch.
    """
    spread = Spread(ranks, _rank(ranks), accumulate)
    spread.check(batches.batch_sequences)
    _check_moves(module, spread)
    prepare(threads)
    module.spread = spread
    state = resume.load(workdir) or (before and replace(before, seconds=0.0, sums={}))
    recorder = Recorder(workdir, log_every, progress, validate, validate_every, watch)
    steps, first = module.training_settings.steps, 0
    if state is not None:
        first = state.step
        module.model.load_state_dict(state.model)
        recorder.sums, recorder.decisions = dict(state.sums), state.decisions
        recorder.last_checkpoint = first
    if spread.rank == 0:
        metrics.cut(workdir / metrics.NAME, first)
    module.first_step = first
    spent = state.seconds if state else 0.0
    checkpointer = Checkpointer(workdir, checkpoint_every, recorder, spent)
    callbacks = [_Continue(state), recorder, checkpointer] if state else [recorder, checkpointer]
    trained = first < steps
    if trained:
        trainer = _trainer(steps - first, precision, device, callbacks, spread)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Lightning's advice on loaders, loggers and devices.
            trainer.fit(module, BatchesDataModule(batches, steps, first, spread))
    steps -= before.step if before else 0
    tokens = steps * batches.batch_sequences * batches.seq_len
    return Fitted(steps, tokens, checkpointer.seconds if trained else spent, first)


def _rank(ranks: int) -> int:
    """Return this process's number, or refuse if it is not one of `ranks`."""
    if ranks <= 1:
        return 0
    started = os.environ.get("WORLD_SIZE", "1")
    if torch.distributed.is_initialized():  # by a phase before; Lightning then forgets WORLD_SIZE
        started = str(torch.distributed.get_world_size())
    rank = os.environ.get("LOCAL_RANK")
    if started != str(ranks) or rank is None:
        raise InputError(
            f"ranks must be the processes that train together, got {ranks} where WORLD_SIZE is "
            f"{started}. Start them with torchrun --nproc-per-node={ranks}."
        )
    return int(rank)


def _check_moves(module: TrainedModule, spread: Spread) -> None:
    method = module.model.method
    if spread.parts > 1 and (has_bias(method) or relu_router(method) is not None):
        raise InputError(
            "ranks and accumulate must be 1 where the method moves biases or an L1 weight by what "
            f"the routers did with a whole batch, got {spread.ranks} and {spread.accumulate} with "
            f"method: {method.method}. Train it in one process."
        )


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
    steps: int,
    precision: Precision,
    device: str,
    callbacks: list[lightning.Callback],
    spread: Spread,
) -> lightning.Trainer:
    """Return a Trainer that only trains: no logger, checkpoint, bar, validation, advertisement."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lightning.Trainer(
            accelerator="gpu" if device == "cuda" else "cpu",
            devices=spread.ranks,
            strategy=_strategy(device) if spread.ranks > 1 else "auto",
            accumulate_grad_batches=spread.accumulate,
            use_distributed_sampler=False,
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


def _strategy(device: str) -> DDPStrategy:
    """Return data parallelism: gradients are averaged over ranks; buffers never change here."""
    backend = "nccl" if device == "cuda" else "gloo"
    return DDPStrategy(process_group_backend=backend, broadcast_buffers=False)
