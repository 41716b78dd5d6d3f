"""Measured inference: seconds to read a prompt and to decode after it, over batch and length.

    load = Load(batch=1, prompt=256, new=16)  # BAM's latency table, arXiv:2408.08274
    works = {name: completion(model, load, precision, device) for name, model in models.items()}
    measured = measure(works, clock=lambda: now(device))
    rows = latency_rows(measured, load)

All models take their turns in each round (`rounds.py`). A completion's time is cut once, when its
first new token is there: before that is the prefill, after it `new - 1` cached steps. The clock is
read nowhere else, since on a GPU each reading waits for all that was asked of it. Prompts are
random tokens, of one length, and no row ends early. What routing does with trained weights and real
text changes the times of sparse routing a little; what is timed is for the caller to say.

A row of kind `latency` is arm, batch, prompt, new, metric, statistic, unit, value, n (rounds):

- metrics: `seconds` of a whole completion, `prefill_seconds`, `step_seconds` (a decoded token of
  all rows), `prefill_tokens_per_second`, `decode_tokens_per_second` (over all rows);
- statistics: `paired`, the one to compare arms by; `median`, `mean` (the paper's: of 10 runs) and
  the quartiles `low` and `high` over rounds, which hold the machine's moods; `spread`, half the
  distance of the quartiles of an arm's share of its round, relative: the noise of a comparison.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles
from typing import Any, Literal, NamedTuple

import torch

from bam_lab.errors import SpecError
from bam_lab.evaluate.rounds import ROUNDS, TURN_SECONDS, WARM_UP, Seconds, in_rounds, paired
from bam_lab.model.context import RoutingRule
from bam_lab.model.ensemble import Ensemble
from bam_lab.model.generate import steps
from bam_lab.model.transformer import Transformer, initialise
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.model import ModelSpec

Work = Callable[[Callable[[], None]], None]
"""Does one completion, and calls what it is given when the first new token is there."""

Row = dict[str, Any]


class Load(NamedTuple):
    """Say what is completed.

    Attributes:
        batch: rows.
        prompt: tokens of each prompt.
        new: tokens that are added to each; at least 2, as one is the prefill's.
    """

    batch: int
    prompt: int
    new: int


BAM_LOAD = Load(batch=1, prompt=256, new=16)
"""Of arXiv:2408.08274's latency table, which states no batch."""


@dataclass(frozen=True)
class Measured:
    """Hold what several arms took for one load.

    Attributes:
        turns: arm -> round -> seconds of (prefill, all later tokens).
        failures: arm -> why it has none.
    """

    turns: dict[str, list[Seconds]]
    failures: dict[str, str]


def measure(
    works: Mapping[str, Work],
    clock: Callable[[], float],
    rounds: int = ROUNDS,
    warm_up: int = WARM_UP,
    turn_seconds: float = TURN_SECONDS,
    tell: Callable[[int, int], None] = lambda done, all_: None,
) -> Measured:
    """Time the arms in turn; one that cannot do it is left out with its reason.

    Args:
        works: arm -> its completion of one load.
        clock: the time in seconds when all that was asked of the device is done.
        rounds: turns of each arm.
        warm_up: completions of each before the first round; the first compiles kernels.
        turn_seconds: about how long a turn is.
        tell: called with turns done and all of them.
    """
    failures: dict[str, str] = {}
    for arm, work in works.items():  # what cannot be done once is not tried in turns
        try:
            timed(work, clock)
        except SpecError as error:
            failures[arm] = str(error)
        except torch.OutOfMemoryError:
            failures[arm] = "the device has too little memory for this batch and length"
    able = [arm for arm in works if arm not in failures]
    taken = in_rounds(
        [lambda work=works[arm]: timed(work, clock) for arm in able],  # type: ignore[misc]
        rounds,
        warm_up,
        turn_seconds,
        tell,
    )
    return Measured(dict(zip(able, taken, strict=True)), failures)


def timed(work: Work, clock: Callable[[], float]) -> tuple[float, float]:
    """Return the seconds of one completion: up to its first new token, and from there."""
    marks = [clock()]
    work(lambda: marks.append(clock()))
    marks.append(clock())
    start, first, end = marks
    return first - start, end - first


def completion(
    model: Transformer | Ensemble,
    load: Load,
    precision: Literal["bf16-mixed", "float32"],
    device: str,
    rule: RoutingRule = "prompt",
) -> Work:
    """Return what completes random prompts greedily, without an end.

    Args:
        model: on the device, in evaluation mode.
        load: what is completed.
        precision: of the passes.
        device: `cpu` or `cuda`.
        rule: how methods that route segments decide.

    Raises:
        SpecError: the load has fewer than 2 new tokens. (What the model cannot do is raised when
            the work is.)
    """
    if load.new < 2:
        raise SpecError(f"new must be at least 2: one is the prefill's, got {load.new}. Ask more.")
    generator = torch.Generator().manual_seed(0)
    size = (load.batch, load.prompt)
    prompts = torch.randint(model.spec.vocab_size, size, generator=generator).to(device)

    def work(first: Callable[[], None]) -> None:
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16-mixed"):
            made = steps(model, prompts, None, load.new, rule=rule)
            next(made)
            first()
            for _ in made:
                pass

    return work


def random_model(
    spec: ModelSpec, method: MethodSpec, num_experts: int, load: Load, device: str
) -> Transformer:
    """Return a model of random weights with room for the load, for rotary positions its own shape.

    What a step takes hangs on shapes; rotary positions have no weights, so room costs nothing.

    Raises:
        SpecError: positions are learned and too few for the load.
    """
    needed = load.prompt + load.new
    if needed > spec.max_seq_len:
        if spec.positions == "learned":
            raise SpecError(
                f"prompt and new must fit into the {spec.max_seq_len} learned positions, got "
                f"{load.prompt} + {load.new}. Ask for fewer."
            )
        spec = spec.model_copy(update={"max_seq_len": needed})
    model = Transformer(spec, method, num_experts)
    return initialise(model, torch.Generator().manual_seed(0)).eval().to(device)


def latency_rows(measured: Measured, load: Load) -> list[Row]:
    """Return the tidy rows of all arms that were timed."""
    found: list[Row] = []
    for metric, seconds, unit, count in _metrics(load):
        turns = {arm: [seconds(turn) for turn in own] for arm, own in measured.turns.items()}
        compared = paired(list(turns.values())) if turns else []
        means = [fmean(times) for times in zip(*turns.values(), strict=True)]
        for (arm, own), value in zip(turns.items(), compared, strict=True):
            numbers = {"paired": _shown(value, count), **_statistics(own, count)}
            shares = [time / mean for time, mean in zip(own, means, strict=True)]
            low, high = quartiles(shares)
            numbers["spread"] = (high - low) / 2 / median(shares)
            found += [
                {
                    "kind": "latency",
                    "arm": arm,
                    **load._asdict(),
                    "metric": metric,
                    "statistic": name,
                    "unit": "" if name == "spread" else unit,
                    "value": number,
                    "n": len(own),
                }
                for name, number in numbers.items()
            ]
    return found


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the lower and the upper quartile; of one value that value."""
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = quantiles(values, method="inclusive")
    return low, high


def _metrics(load: Load) -> list[tuple[str, Callable[[Seconds], float], str, int]]:
    """Return each metric: its seconds from a turn's parts, its unit, and tokens for a rate or 0."""
    steps_after = load.new - 1
    return [
        ("seconds", sum, "s", 0),
        ("prefill_seconds", lambda turn: turn[0], "s", 0),
        ("step_seconds", lambda turn: turn[1] / steps_after, "s", 0),
        ("prefill_tokens_per_second", lambda turn: turn[0], "tokens/s", load.batch * load.prompt),
        ("decode_tokens_per_second", lambda turn: turn[1] / steps_after, "tokens/s", load.batch),
    ]


def _statistics(seconds: Sequence[float], count: int) -> dict[str, float]:
    """Return an arm's own statistics; of a rate the mean is of all tokens over all seconds."""
    low, high = quartiles(seconds)
    ends = (low, high) if not count else (high, low)
    return {
        "median": _shown(median(seconds), count),
        "mean": _shown(fmean(seconds), count),
        "low": _shown(ends[0], count),
        "high": _shown(ends[1], count),
    }


def _shown(seconds: float, count: int) -> float:
    return count / seconds if count else seconds
