"""Routing measures from counts: shares, entropies, and what an expert tells of the domain.

Each domain weighs as much as any other, however much of its text is held out, so `*` over domains
is the mean of their shares. With p(e|d) the share of expert e in the load of domain d, and D
domains, the mutual information is sum_d 1/D sum_e p(e|d) log(p(e|d) / p(e)), in nats: 0 where all
domains are routed alike, log D where every domain has experts of its own.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bam_lab.evaluate.routing_counts import Counts, Floats, Place

Row = dict[str, Any]
ALL = "*"

DEAD = 0.01
"""An expert is dead if its load is less than this part of an even share."""


def entropy(shares: Floats) -> float:
    """Return the entropy of shares that add up to 1, in nats."""
    some = shares[shares > 0]
    return float(-(some * np.log(some)).sum())


def mutual_information(shares: Floats) -> float:
    """Return the mutual information of domain and expert in nats.

    Args:
        shares: [D, E]; each domain's shares add up to 1. Domains weigh the same.
    """
    apart = sum(entropy(own) for own in shares) / len(shares)
    return max(entropy(shares.mean(0)) - apart, 0.0)  # rounding may leave less than nothing


def shares_of(sums: Sequence[Floats]) -> Floats:
    """Return each domain's sums as shares [D, E]; NaN for one in which nothing was sent."""
    table = np.stack(sums)
    with np.errstate(invalid="ignore"):
        shares: Floats = table / table.sum(1, keepdims=True)
    return shares


def own_share(load: Floats, homes: Sequence[str | None], domain: str) -> float | None:
    """Return the share of a domain's load [E] that its own experts take; None if it has none."""
    own = [home == domain for home in homes]
    return float(load[own].sum()) if any(own) else None


def of_domain(counts: Counts) -> Iterator[tuple[str, float]]:
    """Yield the measures of one domain's decisions that are one number."""
    total = max(counts.decisions, 1)
    numbers = np.arange(len(counts.served))
    yield "entropy", counts.entropy / total
    yield "none", float(counts.served[0]) / total
    yield "several", float(counts.served[2:].sum()) / total
    yield "experts", float(counts.served @ numbers) / total
    yield "dropped", counts.dropped / counts.choices if counts.choices else 0.0
    if counts.weight.sum() > 0:
        yield "load_entropy", entropy(counts.weight / counts.weight.sum())


def of_experts(counts: Counts) -> Iterator[tuple[str, Floats]]:
    """Yield the measures of one domain's decisions that are a number for each expert."""
    for name, sums in (("load", counts.weight), ("likeliest", counts.likeliest)):
        if sums.sum() > 0:
            yield name, sums / sums.sum()
    if len(counts.weight) > 2:  # of two experts none can have more than 2/2
        yield "above", counts.above / max(counts.decisions, 1)


def over_domains(counts: Mapping[str, Counts]) -> Iterator[tuple[str, float]]:
    """Yield the measures that need all domains, beside the means of theirs."""
    load = shares_of([own.weight for own in counts.values()])
    load = load[~np.isnan(load).any(1)]
    if not len(load):
        return
    pooled = load.mean(0)
    yield "load_entropy", entropy(pooled)
    yield "load_max", float(pooled.max())
    yield "load_min", float(pooled.min())
    yield "dead", float((pooled < DEAD / len(pooled)).mean())
    if len(pooled) > 2:
        above = np.stack([own.above for own in counts.values()]).sum(0)
        yield "used", float((above > 0).mean())
    if len(load) > 1:
        yield "mutual_information", mutual_information(load)
        likeliest = shares_of([own.likeliest for own in counts.values()])
        likeliest = likeliest[~np.isnan(likeliest).any(1)]
        yield "mutual_information_likeliest", mutual_information(likeliest)


def rows_of(
    place: Place, counts: Mapping[str, Counts], homes: Sequence[str | None]
) -> Iterator[Row]:
    """Yield the rows of one router (`routing.py`) from what was counted of each domain.

    `homes` names each expert's own domain.
    """
    means: dict[str, list[float]] = defaultdict(list)
    by_expert: dict[str, list[Floats]] = defaultdict(list)
    for domain, own in counts.items():
        numbers = list(of_domain(own))
        for name, shares in of_experts(own):
            by_expert[name].append(shares)
            for expert, value in enumerate(shares.tolist()):
                yield row(place, expert, domain, name, value, own.decisions)
            if name == "load" and (taken := own_share(shares, homes, domain)) is not None:
                numbers.append(("own_domain", taken))
                numbers.append(("own_domain_even", homes.count(domain) / len(homes)))
        for name, value in numbers:
            means[name].append(value)
            yield row(place, ALL, domain, name, value, own.decisions)
    total = sum(own.decisions for own in counts.values())
    pooled = {name: sum(values) / len(values) for name, values in means.items()}
    for name, value in (pooled | dict(over_domains(counts))).items():
        yield row(place, ALL, ALL, name, value, total)
    for name, tables in by_expert.items():
        for expert, value in enumerate(np.mean(tables, axis=0).tolist()):
            yield row(place, expert, ALL, name, value, total)


def over_layers(rows: Sequence[Row]) -> list[Row]:
    """Return the mean over layers of all measures that are no single expert's."""
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for one in rows:
        if one["expert"] == ALL:
            found[one["router"], one["domain"], one["metric"]].append(one)
    return [
        own[0]
        | {
            "layer": ALL,
            "value": sum(one["value"] for one in own) / len(own),
            "n": max(one["n"] for one in own),
        }
        for own in found.values()
    ]


def row(place: Place, expert: int | str, domain: str, metric: str, value: float, n: int) -> Row:
    """Return one row of kind `routing`."""
    return {
        "kind": "routing",
        "layer": place.layer,
        "router": place.router,
        "expert": expert,
        "domain": domain,
        "metric": metric,
        "value": value,
        "n": n,
    }
