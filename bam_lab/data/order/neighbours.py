"""Find the documents most alike to each document.

`exact` compares every pair in blocks of rows, never all at once; `by_faiss` searches an index (the
door to faiss). Both put the most similar first, and of equally similar ones the lower number.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bam_lab.data.order.embed import Vectors
from bam_lab.errors import InputError

_SCORES = 1 << 24  # of a block: 64 MB
_FLAT = 100_000  # documents up to which faiss searches exactly too

Count = Callable[[int], None]


@dataclass(frozen=True)
class Neighbours:
    """Hold the nearest documents of each, most similar first.

    Attributes:
        numbers: [N, K]; -1 where an index found no more.
        similarities: [N, K] cosines.
    """

    numbers: NDArray[np.int32]
    similarities: NDArray[np.float32]


def exact(
    vectors: Vectors, count: int, workers: int = 1, done: Count = lambda documents: None
) -> Neighbours:
    """Return the `count` nearest of each document, or all others where there are fewer.

    Args:
        vectors: [N, D] unit vectors.
        count: neighbours.
        workers: threads. Each takes whole blocks and multiplies alone, so that their number
            changes no bit.
        done: is told how many documents have just been finished.
    """
    from threadpoolctl import threadpool_limits

    total = len(vectors)
    count = min(count, total - 1)
    if count < 1:
        return Neighbours(np.zeros((total, 0), np.int32), np.zeros((total, 0), np.float32))
    rows = max(_SCORES // total, 1)

    def block(first: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        scores = vectors[first : first + rows] @ vectors.T
        np.fill_diagonal(scores[:, first:], -np.inf)  # no document is its own neighbour
        return largest(scores, count)

    blocks = []
    with threadpool_limits(1):
        pool = ThreadPoolExecutor(workers)
        try:
            for found in pool.map(block, range(0, total, rows)):
                blocks.append(found)
                done(len(found[0]))
        finally:
            pool.shutdown(cancel_futures=True)
    numbers, similarities = zip(*blocks, strict=True)
    return Neighbours(np.concatenate(numbers), np.concatenate(similarities))


def largest(
    scores: NDArray[np.float32], count: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return columns and values of each row's `count` largest scores, equal ones by column."""
    place = scores.shape[1] - count
    least = np.partition(scores, place, axis=1)[:, place]
    chosen = scores >= least[:, None]
    for row in np.flatnonzero(chosen.sum(axis=1) > count):  # equals at the border: the first stay
        above = int((scores[row] > least[row]).sum())
        chosen[row, np.flatnonzero(scores[row] == least[row])[count - above :]] = False
    columns = np.nonzero(chosen)[1].reshape(len(scores), count)
    values = np.take_along_axis(scores, columns, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return (
        np.take_along_axis(columns, order, axis=1).astype(np.int32),
        np.take_along_axis(values, order, axis=1),
    )


def by_faiss(
    vectors: Vectors,
    count: int,
    rng_seed: int = 0,
    flat: int = _FLAT,
    done: Count = lambda documents: None,
) -> Neighbours:
    """Return nearest documents by a faiss index: exact up to `flat` documents, above in cells.

    Above, vectors are put into 4 sqrt(N) cells and each document searches the nearest sixteenth of
    them, so that some neighbours are missed.

    Raises:
        InputError: faiss is not installed.
    """
    need_faiss()
    import faiss

    total, dim = vectors.shape
    count = min(count, total - 1)
    index: Any = faiss.IndexFlatIP(dim)
    if total > flat:
        cells = int(4 * math.sqrt(total))
        index = faiss.IndexIVFFlat(index, dim, cells, faiss.METRIC_INNER_PRODUCT)
        index.cp.seed = rng_seed
        # Too little text for so many cells is no mistake of anyone's, and would be printed.
        index.cp.min_points_per_centroid = 1
        index.train(vectors)
        index.nprobe = max(cells // 16, 1)
    index.add(vectors)
    numbers = np.full((total, max(count, 0)), -1, np.int32)
    similarities = np.full((total, max(count, 0)), -np.inf, np.float32)
    for first in range(0, total, 4096) if count > 0 else ():
        rows = np.arange(first, min(first + 4096, total))
        values, found = index.search(vectors[rows], count + 1)
        values[(found == rows[:, None]) | (found < 0)] = -np.inf
        order = np.lexsort((found, -values), axis=1)[:, :count]
        values = np.take_along_axis(values, order, axis=1)
        found = np.take_along_axis(found, order, axis=1)
        numbers[rows] = np.where(values > -np.inf, found, -1)
        similarities[rows] = values
        done(len(rows))
    return Neighbours(numbers, similarities)


def need_faiss() -> None:
    """Say how to install faiss where it is missing.

    Raises:
        InputError: it is.
    """
    try:
        import faiss  # noqa: F401
    except ImportError:
        raise InputError(
            "faiss must be installed for index: faiss. Install it with: pip install "
            "'bam-lab[faiss]', or write index: exact."
        ) from None
