"""Times of several works, taken in turn: a slow moment of the machine meets them all.

In a round everyone has a turn of some calls, of which the first is left out: it finds the caches
full of another's. A work's seconds are then taken round by round against the others' (`paired`).
"""

from collections.abc import Callable, Sequence
from statistics import fmean, median

Seconds = tuple[float, ...]
"""What one call of a work took, in parts; as many each time."""

Turns = list[list[Seconds]]
"""Work -> round -> the mean of its calls."""

ROUNDS, WARM_UP = 15, 2
TURN_SECONDS = 0.25


def in_rounds(
    works: Sequence[Callable[[], Seconds]],
    rounds: int = ROUNDS,
    warm_up: int = WARM_UP,
    turn_seconds: float = TURN_SECONDS,
    tell: Callable[[int, int], None] = lambda done, all_: None,
) -> Turns:
    """Return what each work took, a round each.

    Args:
        works: each does one call and returns its seconds, in parts.
        rounds: turns of each work.
        warm_up: calls of each before the first round, at least 1, which also say how long one is.
        turn_seconds: about how long a turn is; a work has at least one counted call in it.
        tell: called with turns done and all of them, warm-up included.
    """
    assert rounds >= 1 and warm_up >= 1
    total, calls = len(works) * (rounds + 1), []
    for index, work in enumerate(works):
        tell(index, total)
        warm = [sum(work()) for _ in range(warm_up)]
        calls.append(max(round(turn_seconds / max(warm[-1], 1e-9)), 1))
    turns: Turns = [[] for _ in works]
    for number in range(rounds):
        for index, work in enumerate(works):
            tell(len(works) * (number + 1) + index, total)
            taken = [work() for _ in range(calls[index] + 1)][1:]
            turns[index].append(tuple(map(fmean, zip(*taken, strict=True))))
    return turns


def paired(turns: Sequence[Sequence[float]]) -> list[float]:
    """Return each work's seconds: its median share of a round's mean, times the median mean.

    A slow round is slow for all, and so changes nobody's share.
    """
    means = [fmean(times) for times in zip(*turns, strict=True)]
    usual = median(means)
    return [
        usual * median(time / mean for time, mean in zip(times, means, strict=True))
        for times in turns
    ]
