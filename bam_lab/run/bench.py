"""Time every system's training step and decoding, beside transformers' Llama and Mixtral.

Each row lives in a process of its own, and the rows of a set take their steps in turn, one at a
time: only such ratios mean anything on a machine that others use. Times are medians over rounds.
No torch here: only the processes import it.
"""

import importlib.util
import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import psutil

from bam_lab.cost.flops import per_token
from bam_lab.cost.params import count, ffn_params
from bam_lab.errors import SpecError
from bam_lab.run.bench_systems import (
    DENSE_ACTIVE,
    DENSE_LONG,
    LORY,
    Contender,
    Shape,
    contenders,
    named,
)
from bam_lab.spec.laws import no_generation

ROUNDS = 7
_BYTES_A_PARAMETER = 20  # weights, gradients, two moments, and what a step holds beside them
_BYTES_A_PROCESS = 4e8
_MEMORY_SHARE = 0.6  # of what is available, for the processes of one set
_ROUND_SECONDS = 0.2
_MATRIX_FLOPS = 2 * 1024**3
_GONE = "the process ended, perhaps for lack of memory"


@dataclass
class Measured:
    """Hold one row's times.

    Attributes:
        forward_backward: seconds of forward, loss and backward, a round each.
        optimizer: seconds of clipping and AdamW, a round each.
        cpu: CPU seconds of a whole step, a round each.
        decode: seconds of one completion of all rows; None where there is none.
        peak_bytes: beyond what the process held before it had a model.
        failure: why there are no times.
        decode_failure: why there is no decoding.
    """

    row: Contender
    forward_backward: list[float]
    optimizer: list[float]
    cpu: list[float]
    decode: float | None = None
    peak_bytes: int = 0
    failure: str = ""
    decode_failure: str = ""

    @property
    def tokens(self) -> int:
        """Tokens of one step."""
        return self.row.batch * self.row.model.max_seq_len

    @property
    def step(self) -> float:
        """Median seconds of a whole step."""
        return median(map(sum, zip(self.forward_backward, self.optimizer, strict=True)))


@dataclass(frozen=True)
class Bench:
    """Hold all rows at one shape, and the FLOPs a second of the machine's matrix products."""

    shape: Shape
    rows: list[Measured]
    matrix_rate: float
    precision: str
    threads: int
    transformers: bool


@dataclass(frozen=True)
class Target:
    """Hold one ratio that is to be reached; `value` is None where a row is missing."""

    text: str
    value: float | None
    limit: float
    at_most: bool

    @property
    def met(self) -> bool | None:
        """Whether it is reached; None where it was not measured."""
        if self.value is None:
            return None
        return self.value <= self.limit if self.at_most else self.value >= self.limit


def bench(
    shape: Shape,
    names: Sequence[str],
    precision: str,
    threads: int,
    rounds: int = ROUNDS,
    tell: Callable[[str], None] = lambda text: None,
) -> Bench:
    """Measure rows at one shape.

    Args:
        shape: shape and batch.
        names: of the rows; none for all.
        precision: `bf16-mixed` or `float32`.
        threads: of every process; one process works at a time.
        rounds: how many times each row takes its turn.
        tell: called with what is being done.

    Raises:
        SpecError: no row has one of the names.
    """
    known = importlib.util.find_spec("transformers") is not None
    everything = contenders(shape, known)
    unknown = [name for name in names if name not in {row.name for row in everything}]
    if unknown:
        listed = ", ".join(row.name for row in everything)
        raise SpecError(f"--system must name rows, got {', '.join(unknown)}. There are: {listed}.")
    asked = [Measured(row, [], [], []) for row in named(names, everything)]
    for one in asked:
        if _needed(one.row) > _room():
            one.failure = f"needs about {_needed(one.row) / 1e9:.0f} GB, more than there is"
    rates = []
    for group in _sets([one for one in asked if not one.failure]):
        rows = [one.row for one in group]
        with _processes([None, *rows], precision, threads) as pipes:
            rates += _rounds(group, pipes, rounds, tell, shape.name)
    return Bench(shape, asked, _MATRIX_FLOPS / median(rates), precision, threads, known)


def _sets(rows: Sequence[Measured]) -> list[list[Measured]]:
    """Cut the rows into sets that fit in memory together."""
    room = _room()
    sets: list[list[Measured]] = []
    taken = math.inf
    for one in rows:
        needed = _needed(one.row)
        if taken + needed > room:
            sets.append([])
            taken = 0.0
        sets[-1].append(one)
        taken += needed
    return sets


def _room() -> float:
    return _MEMORY_SHARE * psutil.virtual_memory().available


def _needed(row: Contender) -> float:
    """Return roughly the bytes that a row's process takes."""
    needed = _BYTES_A_PARAMETER * count(row.model, row.method, row.num_experts).total
    if row.implementation == "batched_mm":  # a copy of an expert for every token and choice
        copies = row.model.num_layers * 2 * row.batch * row.model.max_seq_len
        needed += 4 * copies * ffn_params(row.model)
    return needed + _BYTES_A_PROCESS


@contextmanager
def _processes(
    rows: Sequence[Contender | None], precision: str, threads: int
) -> Iterator[list[Connection]]:
    """Start one process a row; the first is the machine's matrix products."""
    context = multiprocessing.get_context("forkserver")
    # A missing package is left out; where it is there, each process would import it for seconds.
    context.set_forkserver_preload(["bam_lab.run.bench_worker", "bam_lab.hf.reference"])
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the workers that train have it
    from bam_lab.run import bench_start

    pipes, processes = [], []
    try:
        for row in rows:
            ours, theirs = context.Pipe()
            process = context.Process(
                target=bench_start.start, args=(theirs, row, precision, threads), daemon=True
            )
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        yield pipes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


def _ask(pipe: Connection, what: str) -> Any:
    try:
        pipe.send(what)
    except BrokenPipeError:
        return _GONE
    return _answer(pipe)


def _answer(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except (EOFError, ConnectionResetError):
        return _GONE


def _rounds(
    measured: list[Measured],
    pipes: list[Connection],
    rounds: int,
    tell: Callable[[str], None],
    shape: str,
) -> list[float]:
    """Fill in the rows' times; return the seconds of one matrix product, a round each."""
    machine, *others = pipes
    assert _answer(machine) == "ready"
    lengths: dict[str, int] = {}
    for one, pipe in zip(measured, others, strict=True):
        tell(f"{shape}: warming up {one.row.name}")
        started = _answer(pipe)
        one.failure = "" if started == "ready" else str(started)
        for _ in range(2):  # the first compiles kernels
            if not one.failure:
                warm = _ask(pipe, "step")
                one.failure = warm if isinstance(warm, str) else ""
        if not one.failure:
            lengths[one.row.name] = max(round(_ROUND_SECONDS / (warm[0] + warm[1])), 1)
    seconds = []
    for number in range(rounds):
        tell(f"{shape}: round {number + 1} of {rounds}, {len(measured)} rows in turn")
        seconds.append(_ask(machine, "step")[0])
        for one, pipe in zip(measured, others, strict=True):
            if not one.failure:
                # The first step after other rows' finds cold caches and sleeping threads.
                steps = [_ask(pipe, "step") for _ in range(lengths[one.row.name] + 1)][1:]
                if lost := [found for found in steps if isinstance(found, str)]:
                    one.failure = lost[0]
                    continue
                one.forward_backward.append(sum(s[0] for s in steps) / len(steps))
                one.optimizer.append(sum(s[1] for s in steps) / len(steps))
                one.cpu.append(sum(s[2] for s in steps) / len(steps))
    for one, pipe in zip(measured, others, strict=True):
        if not one.failure:
            one.peak_bytes = _ask(pipe, "peak")
            tell(f"{shape}: decoding by {one.row.name}")
            _decode(one, pipe)
    return seconds


def _decode(one: Measured, pipe: Connection) -> None:
    refused = no_generation(one.row.method)
    if refused:
        one.decode_failure = refused
        return
    times = [_ask(pipe, "decode") for _ in range(3)][1:]
    failures = [found for found in times if isinstance(found, str)]
    one.decode_failure = failures[0] if failures else ""
    one.decode = None if failures else median(times)


def executed(one: Measured) -> int:
    """Return the FLOPs that one step of a row of ours runs."""
    row = one.row
    flops = per_token(row.model, row.method, row.num_experts, row.model.max_seq_len)
    return one.tokens * flops.executed_training


def targets(made: Bench) -> list[Target]:
    """Return the ratios that the rows are to reach."""
    rows = {one.row.name: one for one in made.rows if not one.failure}
    btx, soft = rows.get("btx top-2"), rows.get("bam soft, kv shared")
    mixtral = [one for name, one in rows.items() if name.startswith("HF Mixtral")]
    fastest = min(mixtral, key=lambda one: one.step, default=None)
    flops = executed(soft) / executed(btx) if btx and soft else 1.0
    found = [
        Target(
            "BTX top-2 trains at least 1.3 times as fast as transformers' fastest Mixtral",
            _times_as_fast(btx, fastest),
            1.3,
            at_most=False,
        ),
        Target(
            "BTX top-2 trains at least 0.8 times as fast as dense of equal active FLOPs",
            _times_as_fast(btx, rows.get(DENSE_ACTIVE)),
            0.8,
            at_most=False,
        ),
        Target(
            f"soft BAM's time over BTX's is at most 1.3 times its FLOPs over BTX's ({flops:.2f})",
            _ratio(_times_as_fast(btx, soft), flops),
            1.3,
            at_most=True,
        ),
    ]
    for name, printed in zip(LORY, (0.155, 0.283), strict=True):
        slower = _gradient_ratio(rows.get(name), rows.get(DENSE_LONG))
        text = f"{name}: slower than dense by at most {printed:.1%} (optimizer left out)"
        found.append(Target(text, slower, printed, at_most=True))
    return found


def _times_as_fast(one: Measured | None, other: Measured | None) -> float | None:
    return other.step / one.step if one and other else None


def _ratio(value: float | None, by: float) -> float | None:
    return None if value is None else value / by


def _gradient_ratio(one: Measured | None, dense: Measured | None) -> float | None:
    """Return how much less throughput forward and backward have than dense.

    The optimizer is left out: at the paper's batch of a million tokens it is nothing, at ours of
    two thousand it is much of a step.
    """
    if one is None or dense is None:
        return None
    return 1 - median(dense.forward_backward) / median(one.forward_backward)
