"""Whether the printed numbers support the sentences that were made of them: `supports`, checked.

A test of a claim is applied to the printed numbers as it would be to ours: by sign, with the 0.5%
margin. What takes two tables, or other arms than ours, is written out in `BY_HAND`.
"""

import math

import pytest

from bam_lab import resources
from bam_lab.report.leaves import nats
from bam_lab.spec.claim_tests import (
    AtHomeTest,
    BetterTest,
    DiagonalTest,
    EqualTest,
    MonotoneTest,
    NoGainTest,
    OrderTest,
    RatioTest,
    wanted_of,
)
from bam_lab.spec.claims import ClaimsFile
from bam_lab.spec.published import PublishedTable
from bam_lab.spec.reader import read

CLAIMS = read(resources.folder("ablations") / "claims.yaml", ClaimsFile).claims
DELTA = nats(0.005)


def table(name):
    return read(resources.folder("published") / f"{name}.yaml", PublishedTable)


def value(name, arm, column, match="any"):
    return table(name).row(arm, match).values[column]


BY_HAND = {
    # Both ends of the axis, in every domain.
    # FLOPs of a layer are in another table than the latency; serial blocks were not measured.
    "C8": lambda: [
        value("bam-table-7", "btx", "flops") < value("bam-table-7", "kv-experts", "flops"),
        *(
            value("bam-latency", arm, "latency") / value("bam-latency", "btx", "latency")
            <= value("bam-table-7", "kv-experts", "flops") / value("bam-table-7", "btx", "flops")
            for arm in ("kv-experts", "kv-sharing")
        ),
    ],
    "C10": lambda: [
        all(
            value("bam-table-5", "btx-6-top-3", d, "tokens")
            < value("bam-table-4", "btx-6", d, "tokens")
            for d in ("general", "code", "law", "math")
        )
    ],
    "C13": lambda: [
        value("btx-table-8", "btx", task) > value("btx-table-1", expert, task) * math.exp(DELTA)
        for expert, task in (
            ("math-expert", "gsm8k"),
            ("math-expert", "math"),
            ("code-expert", "humaneval"),
            ("code-expert", "mbpp"),
            ("wiki-expert", "nq"),
        )
    ],
    "C14": lambda: [
        _a_day("btx") > _a_day("sparse-upcycling"),
        value("btx-table-3", "btx", "days", "flops")
        <= value("btx-table-3", "sparse-upcycling", "days", "flops"),
    ],
    "C17b": lambda: [
        abs(
            math.log(
                value("lory-table-2", "ec-segment", d, "tokens")
                / value("lory-figure-2", "dense", d, "tokens")
            )
        )
        < nats(0.03)
        for d in ("arxiv", "books", "wiki", "c4", "python")
    ],
    "C22b": lambda: [
        value("lory-table-6", f"lory-{experts}-re-routed", "average")
        > value("lory-table-6", f"lory-{experts}", "average") * math.exp(DELTA)
        for experts in (8, 16)
    ],
    "C23": lambda: [sum(gain > 0 for gain in _gains()) > 8, sum(_gains()[:-2]) / 15 >= 1.0],
    "C24": lambda: [
        _gain("lory-table-1", "lory-32") > _gain("lory-table-1-1.5b", "lory-32"),
        _gain("lory-table-1-1.5b", "lory-32") > _gain("lory-table-1-7b", "lory-4"),
    ],
}


def _gains():
    """Return Lory's printed gains at 1.5B with 32 experts, task by task, the largest last."""
    found = table("lory-table-1-1.5b")
    mine, theirs = (found.row(arm, "tokens").values for arm in ("lory-32", "dense"))
    tasks = [key for key, column in found.columns.items() if column.domain]
    assert len(tasks) == 17
    return sorted(mine[task] - theirs[task] for task in tasks)


def _a_day(arm):
    return value("btx-table-3", arm, "tokens", "flops") / value(
        "btx-table-3", arm, "gpu_days", "flops"
    )


def _gain(name, arm):
    return value(name, arm, "average", "tokens") - value(name, "dense", "average", "tokens")


@pytest.mark.parametrize("name", [n for n, c in CLAIMS.items() if c.printed.table])
def test_what_the_printed_numbers_support(name):
    claim = CLAIMS[name]
    if name in BY_HAND:
        known = BY_HAND[name]()
    else:
        tables = [table(t) for t in (claim.printed.table, *claim.printed.and_tables)]
        outcomes = [_printed(tables, claim, test) for test in claim.tests]
        known = [outcome for outcome in outcomes if outcome is not None]
    assert known, "no test of the claim finds its numbers"
    found = "yes" if all(known) else "in part" if any(known) else "no"
    assert claim.printed.supports == found, known


def test_claims_without_a_table_say_so():
    for claim in CLAIMS.values():
        assert (claim.printed.supports == "none printed") == (not claim.printed.table)


def test_every_printed_table_that_a_claim_names_exists():
    for claim in CLAIMS.values():
        for name in (claim.printed.table, *claim.printed.and_tables):
            assert not name or table(name).id == name


def _printed(tables, claim, test):
    """Return what the print says of one test; None where it says nothing."""
    match test:
        case DiagonalTest():
            return _diagonal(tables[0], test.measure)
        case AtHomeTest():
            return _at_home(tables[0], claim, test)
        case OrderTest():
            pairs = list(zip(test.arms, test.arms[1:], strict=False))
            judged = [_pair(tables, claim, test, *pair, _better) for pair in pairs]
            return None if None in judged else all(judged)
        case MonotoneTest():
            arms = [row.arm for row in tables[0].rows if row.arm.startswith(f"{test.arm}-")]
            pairs = list(zip(arms[1:], arms, strict=False))
            judged = [
                _pair(tables, claim, test, *pair, lambda gain: gain > -DELTA) for pair in pairs
            ]
            judged.append(_pair(tables, claim, test, arms[-1], arms[0], _better))
            return None if None in judged else all(judged)
        case BetterTest():
            return _pair(tables, claim, test, test.arm, test.than, _better)
        case NoGainTest():
            return _pair(tables, claim, test, test.arm, test.over, lambda gain: gain < DELTA)
        case EqualTest():
            most = nats((test.within or 0.5) / 100)
            return _pair(tables, claim, test, test.arm, test.to, lambda gain: abs(gain) < most)
        case RatioTest(within=within, at_most=most):
            if within is not None:
                return _pair(
                    tables, claim, test, test.arm, test.than, lambda g: abs(g) < nats(within)
                )
            return _pair(tables, claim, test, test.arm, test.than, lambda g: -g < math.log(most))
    return None


def _better(gain):
    return gain >= DELTA


def _pair(tables, claim, test, one, two, holds):
    """Apply a test to the gains of one arm on another, as logarithms of the printed ratio."""
    for found in tables:
        columns = _columns(found, claim, test)
        rows = [_row(found, claim, role, test.match) for role in (one, two)]
        if columns and None not in rows:
            gains = [_gain_of(found, keys, *rows) for keys in columns]
            return sum(map(holds, gains)) >= wanted_of(test.in_, len(gains))
    return None


def _columns(found, claim, test):
    """Return groups of columns whose logarithms are averaged: one group a comparison."""
    metric = test.measure
    if metric == "perplexity" and not any(c.metric == metric for c in found.columns.values()):
        metric = "task_accuracy"  # what the paper printed instead
    keys = [key for key, column in found.columns.items() if column.metric == metric]
    apart = [key for key in keys if found.columns[key].domain]
    if test.in_ != "average":
        return [[key] for key in apart]
    whole = claim.printed.column or next((k for k in keys if k not in apart), "")
    return [[whole]] if whole else [apart] if apart else []


def _gain_of(found, keys, mine, theirs):
    logs = [math.log(theirs.values[k] / mine.values[k]) for k in keys]
    higher = found.columns[keys[0]].better == "higher"
    return math.fsum(logs) / len(logs) * (-1 if higher else 1)


def _row(found, claim, role, match):
    """Return the row that fills a role; where any match will do, the equal-compute one first."""
    matches = ("flops", "tokens") if match == "any" else (match,)
    arms = claim.roles.get(role, (role,))
    return next((row for arm in arms for m in matches if (row := found.row(arm, m))), None)


def _diagonal(found, metric):
    dense = [row for row in found.rows if row.arm.endswith("-expert") or row.arm == "seed-model"]
    best = max if metric == "task_accuracy" else min
    return all(
        best(dense, key=lambda row: row.values[d]).arm == f"{d}-expert"
        for d in ("code", "law", "math")
    )


def _at_home(found, claim, test):
    mine = _row(found, claim, test.arm, "any")
    return all(
        math.log(found.row(f"{d}-expert", "any").values[d] / mine.values[d]) >= DELTA
        for d in ("code", "law", "math")
    )
