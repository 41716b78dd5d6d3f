"""Walk from document to nearest unvisited neighbour until each has been visited once.

Both published rules go on to the most similar unvisited neighbour. They differ in what a neighbour
is, and in where to start anew when there is none left:

- `simple` (arXiv:2405.03133 App. C): one of a document's own k nearest; the first document not yet
  visited. Documents stand in the order of a hash, so that the first one is any one.
- `min_degree` (arXiv:2310.10638 Algorithm 1): either is among the other's k nearest; the unvisited
  document with the fewest neighbours, visited ones counted. The algorithm as printed goes on to the
  least similar neighbour (arg min); the text above it says the most similar, as we do. The authors'
  program starts anywhere, ends a chain after 21 documents and spreads the short chains over others:
  we follow the paper.

Near duplicates, which both papers remove first, are gone from a built corpus.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bam_lab.data.order.neighbours import Neighbours


@dataclass(frozen=True)
class Chain:
    """Hold an order of documents.

    Attributes:
        order: [N] document numbers, each once.
        restarts: how often the next document was not a neighbour of the one before.
    """

    order: NDArray[np.int64]
    restarts: int


@dataclass(frozen=True)
class Edges:
    """Hold what each document may go on to, most similar first: `to[start[i] : start[i + 1]]`."""

    start: NDArray[np.int64]
    to: NDArray[np.int64]


def chain(neighbours: Neighbours, traversal: Literal["min_degree", "simple"]) -> Chain:
    """Return the chain over all documents, in time linear in the edges but for sorting."""
    total = len(neighbours.numbers)
    match traversal:
        case "simple":
            return _walk(edges(neighbours, both_ways=False), range(total))
        case "min_degree":
            found = edges(neighbours, both_ways=True)
            fewest = np.argsort(np.diff(found.start), kind="stable")
            return _walk(found, fewest.tolist())


def edges(neighbours: Neighbours, both_ways: bool) -> Edges:
    """Return the edges from each document to its neighbours; `both_ways`: and back from them."""
    total, count = neighbours.numbers.shape
    known = neighbours.numbers.ravel() >= 0
    source = np.repeat(np.arange(total), count)[known]
    target = neighbours.numbers.ravel()[known].astype(np.int64)
    weight = neighbours.similarities.ravel()[known]
    if both_ways:
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
        weight = np.concatenate([weight, weight])
        # Two products of one pair may differ in the last bit: the larger holds both ways.
        order = np.lexsort((-weight, target, source))
        source, target, weight = source[order], target[order], weight[order]
        first = np.ones(len(source), dtype=bool)
        first[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
        source, target, weight = source[first], target[first], weight[first]
    order = np.lexsort((target, -weight, source))
    start = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=total))])
    return Edges(start, target[order])


def _walk(found: Edges, starts: Iterable[int]) -> Chain:
    """Visit every document; `starts` lists all, those to start from first."""
    # Python reads single numbers faster out of these than out of arrays.
    start, to = found.start.data, found.to.data
    visited = bytearray(len(start) - 1)
    order: list[int] = []
    restarts = -1
    for first in starts:
        if visited[first]:
            continue
        restarts += 1
        here: int | None = first
        while here is not None:
            visited[here] = 1
            order.append(here)
            ahead = (to[place] for place in range(start[here], start[here + 1]))
            here = next((number for number in ahead if not visited[number]), None)
    return Chain(np.array(order, dtype=np.int64), max(restarts, 0))
