"""One process of `bam-lab bench`: it holds one model and does a step when it is told to.

A fresh process for each model, so that its peak memory is its own; the parent tells one after the
other to go, so that a slow moment of the machine meets them all.
"""

import resource
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import psutil
import torch
from torch import Tensor, nn

from bam_lab.errors import BamLabError
from bam_lab.model.generate import generate
from bam_lab.model.transformer import Transformer, initialise
from bam_lab.run.bench_systems import DECODED_ROWS, NEW, PROMPT, Contender
from bam_lab.run.timed import timed, training_loss, training_step
from bam_lab.train.numerics import prepare

MATRIX = 1024
"""Rows and columns of the product whose rate stands for the machine's."""


def serve(pipe: Connection, row: Contender | None, precision: str, threads: int) -> None:
    """Answer what the parent asks of one row; None measures the machine's matrix products.

    `step`: seconds of (forward, loss, backward), of (clip, AdamW), and CPU seconds of all threads
    over both, which other programs disturb less. `decode`: seconds of one
    completion. `peak`: bytes that the process took since it held no model. `stop` ends it.
    """
    prepare(threads)
    before = psutil.Process().memory_info().rss
    try:
        # ru_maxrss can be the parent's: a fork inherits it.
        asked = _asked(row, precision) if row else {"step": _matrix_product(precision)}
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {_short(error)}")
        return
    pipe.send("ready")
    while (what := pipe.recv()) != "stop":
        if what == "peak":
            pipe.send(max(_peak() - before, 0))
            continue
        try:
            pipe.send(asked[what]())
        except Exception as error:  # one system's failure is a row of the table
            if not isinstance(error, BamLabError):
                traceback.print_exc(file=sys.stderr)
            pipe.send(f"{type(error).__name__}: {_short(error)}")


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return lines[0][:200]


def _peak() -> int:
    """Return the most memory that this process has held, in bytes."""
    try:
        with open("/proc/self/status") as status:
            found = next(line for line in status if line.startswith("VmHWM"))
        return int(found.split()[1]) * 1024
    except (OSError, StopIteration):
        scale = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def _asked(row: Contender, precision: str) -> dict[str, Callable[[], Any]]:
    generator = torch.Generator().manual_seed(0)
    batch = (row.batch, row.model.max_seq_len + 1)
    tokens = torch.randint(row.model.vocab_size, batch, generator=generator)
    if row.library == "transformers":
        model: nn.Module = _transformers(row)
        return {
            "step": training_step(model, lambda: _their_loss(model, tokens), precision),
            "decode": lambda: timed(lambda: _their_decoding(model, tokens), precision),
        }
    ours = initialise(Transformer(row.model, row.method, row.num_experts), generator)
    return {
        "step": training_step(ours, lambda: training_loss(ours, tokens), precision),
        "decode": lambda: timed(lambda: _our_decoding(ours, tokens), precision),
    }


def _transformers(row: Contender) -> nn.Module:
    from bam_lab.hf.reference import llama, mixtral

    torch.manual_seed(0)
    if row.num_experts == 1:
        return llama(row.model)
    return mixtral(row.model, row.num_experts, 2, row.implementation)


def _their_loss(model: Any, tokens: Tensor) -> Tensor:
    loss: Tensor = model(input_ids=tokens[:, :-1], labels=tokens[:, :-1]).loss
    return loss


def _our_decoding(model: Transformer, tokens: Tensor) -> None:
    generate(model, tokens[:DECODED_ROWS, :PROMPT], None, NEW, end=None)


def _their_decoding(model: Any, tokens: Tensor) -> None:
    prompts = tokens[:DECODED_ROWS, :PROMPT]
    model.generate(
        input_ids=prompts,
        attention_mask=torch.ones_like(prompts),
        max_new_tokens=NEW,
        min_new_tokens=NEW,
        do_sample=False,
        use_cache=True,
        pad_token_id=0,
    )


def _matrix_product(precision: str) -> Callable[[], tuple[float, float, float]]:
    dtype = torch.bfloat16 if precision == "bf16-mixed" else torch.float32
    a, b = torch.randn(MATRIX, MATRIX).to(dtype), torch.randn(MATRIX, MATRIX).to(dtype)
    out = torch.empty_like(a)

    def step() -> tuple[float, float, float]:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            torch.mm(a, b, out=out)
            times.append(time.perf_counter() - start)
        return min(times), 0.0, 0.0

    return step
