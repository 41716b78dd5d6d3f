"""A training step and a completion of one model, to be timed: for `bench` and for `calibrate`."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from bam_lab.model.context import Draw
from bam_lab.model.losses import next_token_loss
from bam_lab.model.router_losses import router_losses, weigh
from bam_lab.model.transformer import Transformer
from bam_lab.train.optim import DEFAULTS, adamw


def training_loss(model: Transformer, tokens: Tensor) -> Tensor:
    """Return the loss of a training step, router losses included, as `train/module.py` has it."""
    draw = Draw(100, torch.Generator(tokens.device).manual_seed(0))
    output = model(tokens[:, :-1], draw)
    nll = next_token_loss(output.hidden, model.lm_head_weight, tokens[:, 1:])
    return nll + weigh(router_losses(output, model.method), model.method, model.l1_weight)


def training_step(
    model: nn.Module, loss: Callable[[], Tensor], precision: str, device: str = "cpu"
) -> Callable[[], tuple[float, float, float]]:
    """Return what does a step: seconds of (forward, loss, backward), of (clip, AdamW), CPU seconds.

    The last are of all threads over both.
    """
    optimizer = adamw(model, DEFAULTS)
    parameters = [p for p in model.parameters() if p.requires_grad]

    def step() -> tuple[float, float, float]:
        start, cpu = now(device), time.process_time()
        optimizer.zero_grad()
        with autocast(precision, device):
            value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        between = now(device)
        torch.nn.utils.clip_grad_norm_(parameters, DEFAULTS.grad_clip)
        optimizer.step()
        return between - start, now(device) - between, time.process_time() - cpu

    return step


def timed(work: Callable[[], object], precision: str, device: str = "cpu") -> float:
    """Return the seconds of some work without gradients."""
    start = now(device)
    with torch.no_grad(), autocast(precision, device):
        work()
    return now(device) - start


def now(device: str) -> float:
    """Return the time when all that was asked of the device is done."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def autocast(precision: str, device: str = "cpu") -> AbstractContextManager[Any]:
    """Return the context of a precision."""
    if precision == "bf16-mixed":
        return torch.autocast(device, torch.bfloat16)
    return nullcontext()
