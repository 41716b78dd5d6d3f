"""Gains task by task, item by item: paired tests, intervals, and how much one task carries.

Both arms answered the same items, so a gain is the mean of differences. Of right and wrong answers,
one item a document, it is tested by McNemar's exact test (the binomial of the items that only one
got right) with Tango's score interval (Statistics in Medicine 17, 1998), which is sound for few
items and where no answer differs. The exact test is the stricter of the two.

Everything else (several items a document, replicates, scores between 0 and 1) is clustered by
document: under no gain each document's difference is as likely to have the other sign. Its p is of
all flips of signs, and its interval of the means over all subsets of documents, which is the same
test turned round (Hartigan, JASA 64, 1969): exact up to `EXACT` documents, beyond by `DRAWS` random
subsets, where it is the bootstrap's interval nearly.

All of it is the noise of the test set, not of training.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from bam_lab.errors import InputError
from bam_lab.report.chance import Task
from bam_lab.report.stats import LEVEL

EXACT = 12
"""Documents up to which all subsets are taken."""
DRAWS = 3999
_CHUNK = 200  # subsets at a time


@dataclass(frozen=True)
class Answer:
    """Hold what one model answered to one item.

    Attributes:
        replicate: None where there is one only.
        document: what the item is about; items of one document are not independent.
        item: its name within the task.
        value: its score, between 0 and 1.
        given, wanted: the answer that it gave and the right one, where it is one of a few.
    """

    arm: str
    replicate: int | None
    task: Task
    document: str
    item: str
    value: float
    given: str | None = None
    wanted: str | None = None


@dataclass(frozen=True)
class Gain:
    """Hold how much better one arm is than another on one task.

    Attributes:
        mean: mean difference of the items' scores, first minus second.
        low, high: its 95% interval.
        p: two-sided, for "there is a difference".
        how: `paired` answers, or `clustered` by document.
    """

    task: Task
    mean: float
    low: float
    high: float
    p: float
    items: int
    documents: int
    how: Literal["paired", "clustered"]


@dataclass(frozen=True)
class Majority:
    """Hold how often one model gave the answer that it gives most.

    Attributes:
        answer: that answer.
        share: of the items that got it.
        wanted: the share of items of which the most frequent right answer is right: what giving it
            always would score.
    """

    answer: str
    share: float
    wanted: float


def gain(answers: Sequence[Answer], first: str, second: str, task: Task) -> Gain:
    """Compare two arms on one task; several replicates are averaged, item by item.

    Raises:
        InputError: they did not answer the same items.
    """
    mine, theirs = (_items(answers, arm, task) for arm in (first, second))
    if mine.keys() != theirs.keys() or not mine:
        apart = sorted(item for _, item in mine.keys() ^ theirs.keys())
        example = f", {apart[0]} for one" if apart else ""
        raise InputError(
            f"{first} and {second} must answer the same items of {task.label}, got {len(mine)} and "
            f"{len(theirs)}, {len(apart)} of them only one arm's{example}. Score both anew."
        )
    names = sorted(mine)
    differences = np.array([mine[name] - theirs[name] for name in names])
    documents = [document for document, _ in names]
    whole = all(value in (0.0, 1.0) for value in (*mine.values(), *theirs.values()))
    count = len(set(documents))
    mean = float(differences.mean())
    if whole and count == len(names):
        better, worse = int((differences > 0).sum()), int((differences < 0).sum())
        low, high = score_interval(better, worse, len(names))
        p = mcnemar(better, worse)
        return Gain(task, mean, low, high, p, len(names), count, "paired")
    low, high, p = clustered(differences, documents)
    return Gain(task, mean, low, high, p, len(names), count, "clustered")


def mcnemar(better: int, worse: int) -> float:
    """Return the exact two-sided p of McNemar's test from the items that only one got right."""
    if better + worse == 0:
        return 1.0
    return float(stats.binomtest(better, better + worse, 0.5).pvalue)


def score_interval(
    better: int, worse: int, items: int, level: float = LEVEL
) -> tuple[float, float]:
    """Return Tango's interval of the difference of two paired shares.

    Args:
        better: items that only the first got right.
        worse: items that only the second got right.
        items: all of them.
        level: 1 - confidence.
    """
    z = float(stats.norm.ppf(1 - level / 2))
    mean = (better - worse) / items

    def distance(delta: float) -> float:
        """Return how many standard errors the data lie above a difference of `delta`."""
        b = -better - worse + (2 * items - better + worse) * delta
        root = math.sqrt(max(b * b + 8 * items * worse * delta * (1 - delta), 0.0))
        only_second = (root - b) / (4 * items)  # the share of such items, most likely given delta
        variance = items * (2 * only_second + delta * (1 - delta))
        return (better - worse - items * delta) / math.sqrt(max(variance, _TINY))

    ends = (-1 + _EDGE, mean, 1 - _EDGE)
    low = -1.0 if distance(ends[0]) < z else _root(lambda x: distance(x) - z, ends[0], mean)
    high = 1.0 if distance(ends[2]) > -z else _root(lambda x: distance(x) + z, mean, ends[2])
    return low, high


_EDGE, _TINY = 1e-9, 1e-300


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(optimize.brentq(function, low, high, xtol=1e-10))


def clustered(
    differences: NDArray[np.float64], documents: Sequence[str], level: float = LEVEL
) -> tuple[float, float, float]:
    """Return interval and p of a mean difference whose documents are the independent units.

    The interval is within -1 and 1, and all of that where documents are too few to say more. Where
    no item differs, it is that of as many documents with one answer each.
    """
    names = sorted(set(documents))
    place = {name: index for index, name in enumerate(names)}
    owner = np.array([place[name] for name in documents])
    totals = np.bincount(owner, weights=differences).astype(np.float64)
    sizes = np.bincount(owner).astype(np.float64)
    if not np.abs(differences).max() > _EDGE:
        return (*score_interval(0, 0, len(names), level), 1.0)
    means = _subset_means(totals, sizes)
    # Flipping a subset's signs leaves a sum as large if and only if the subset's own is not
    # positive; the empty one, which flips nothing, is the data themselves.
    many = len(means) + 1
    up = (int((means <= _EDGE).sum()) + 1) / many
    down = (int((means >= -_EDGE).sum()) + 1) / many
    taken = math.floor(level / 2 * many)
    if taken < 1:
        return -1.0, 1.0, min(1.0, 2 * min(up, down))
    ordered = np.sort(means)
    return float(ordered[taken - 1]), float(ordered[-taken]), min(1.0, 2 * min(up, down))


def _subset_means(totals: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean difference over subsets of documents, the empty one left out."""
    count = len(totals)
    if count <= EXACT:
        numbers = np.arange(1, 2**count)
        chosen = (numbers[:, None] >> np.arange(count)) & 1
        exact: NDArray[np.float64] = (chosen @ totals) / (chosen @ sizes)
        return exact
    rng = np.random.default_rng(0)
    means = []
    for start in range(0, DRAWS, _CHUNK):
        chosen = rng.integers(0, 2, (min(_CHUNK, DRAWS - start), count))
        chosen[chosen.sum(1) == 0, 0] = 1  # one in 8,192 or fewer would be empty
        means.append((chosen @ totals) / (chosen @ sizes))
    return np.concatenate(means)


def majority(answers: Sequence[Answer], arm: str, task: Task) -> Majority | None:
    """Return how often an arm gave its most frequent answer; None where answers are free text."""
    own = [a for a in answers if (a.arm, a.task) == (arm, task)]
    given = Counter(a.given for a in own if a.given is not None)
    wanted = Counter(a.wanted for a in own if a.wanted is not None)
    if not own or given.total() < len(own) or wanted.total() < len(own):
        return None
    answer, times = min(given.items(), key=lambda pair: (-pair[1], pair[0]))
    return Majority(answer, times / len(own), max(wanted.values()) / len(own))


def leave_one_out(gains: Mapping[Task, float]) -> dict[Task, float]:
    """Return the mean gain over the other tasks, task by task."""
    if len(gains) < 2:
        return {}
    total = math.fsum(gains.values())
    return {task: (total - own) / (len(gains) - 1) for task, own in gains.items()}


def without_largest(gains: Mapping[Task, float], count: int) -> tuple[float, tuple[Task, ...]]:
    """Return the mean gain without the `count` tasks that gain most, and these tasks."""
    assert count < len(gains)
    order = sorted(gains, key=lambda task: -gains[task])
    rest = order[count:]
    return math.fsum(gains[task] for task in rest) / len(rest), tuple(order[:count])


def _items(answers: Sequence[Answer], arm: str, task: Task) -> dict[tuple[str, str], float]:
    """Return each item's score, averaged over replicates, by document and item."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for answer in answers:
        if (answer.arm, answer.task) == (arm, task):
            found[answer.document, answer.item].append(answer.value)
    return {name: math.fsum(values) / len(values) for name, values in found.items()}
