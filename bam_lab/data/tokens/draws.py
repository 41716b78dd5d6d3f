"""Which domain each sequence of a phase comes from, decided without chance by the mix alone.

Domain d's draw number j stands at time (j + 1/2) / weight(d), and draws are taken in order of time.
After any number of sequences no domain is off its share by more than one or two of them.
"""

import math
from collections import Counter
from collections.abc import Mapping


def draws(weights: Mapping[str, float], first: int, last: int) -> list[tuple[str, int]]:
    """Return (domain, draw number) of the sequences `first` to `last - 1`.

    Weights are above 0 and sum to 1.
    """
    before, events = _draws_around(weights, first, last)
    skipped = first - sum(before.values())
    return events[skipped : skipped + last - first]


def drawn(weights: Mapping[str, float], count: int) -> dict[str, int]:
    """Return how many of the first `count` sequences come from each domain."""
    before, events = _draws_around(weights, count, count)
    late = Counter(domain for domain, _ in events[: count - sum(before.values())])
    return {domain: before[domain] + late[domain] for domain in weights}


def _draws_around(
    weights: Mapping[str, float], first: int, last: int
) -> tuple[dict[str, int], list[tuple[str, int]]]:
    """Return draws in order of time, the `first`-th to the `last`-th among them.

    Also how many draws of each domain come before those listed. Before time t a domain has made
    t * weight draws, give or take a half, so that a few units around [first, last] do.
    """
    slack = len(weights) + 1
    before: dict[str, int] = {}
    events: list[tuple[float, str, int]] = []
    for domain, weight in weights.items():
        before[domain] = max(math.ceil((first - slack) * weight - 0.5), 0)
        until = math.ceil((last + slack) * weight - 0.5)
        events += [((n + 0.5) / weight, domain, n) for n in range(before[domain], until)]
    return before, [(domain, draw) for _, domain, draw in sorted(events)]
