"""Find the later one of two equal or nearly equal documents, over any number of them.

Near duplicates: MinHash signatures (rensa) cut into bands; documents that agree in a band stand in
one bucket and are compared by their whole signatures (Leskovec, Rajaraman, Ullman, Mining of
Massive Datasets, §3.4). One band is in memory at a time. The only module that imports rensa.
"""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from bam_lab.data.corpus.runs import Hashes
from bam_lab.errors import InputError

Mask = NDArray[np.bool_]
Signatures = NDArray[np.uint32]

PERMUTATIONS = 128  # the standard error of an estimate near 0.8 is 0.035
RECALL = 0.9  # of pairs at the threshold itself; of more similar ones it is higher
COMPARED = 64  # documents before it in a bucket that a document is compared with
_RNG_SEED = 1
_PAIRS = 16_384


def signatures(shingles: Hashes, counts: NDArray[np.int64]) -> Signatures:
    """Return the MinHash signature of each document, of its `counts` shingles.

    Raises:
        InputError: rensa is not installed.
    """
    try:
        from rensa import RMinHash
    except ImportError:
        raise InputError(
            "near duplicates need the package rensa, got none. Run: pip install 'bam-lab[data]'"
        ) from None
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(shingles, ends, PERMUTATIONS, _RNG_SEED)
    return np.array(matrix.to_rows(), dtype=np.uint32).reshape(len(counts), PERMUTATIONS)


def band_rows(threshold: float) -> int:
    """Return how many rows a band has: as many as still find `RECALL` of pairs at the threshold."""
    for rows in (32, 16, 8, 4, 2):
        if 1 - (1 - threshold**rows) ** (PERMUTATIONS // rows) >= RECALL:
            return rows
    return 1


def bands(found: Signatures, rows: int) -> Hashes:
    """Return a hash of each band of each document, shaped (documents, bands)."""
    keys = np.zeros((len(found), PERMUTATIONS // rows), dtype=np.uint64)
    parts = found.reshape(len(found), -1, rows).astype(np.uint64)
    for row in range(rows):
        keys = (keys ^ parts[:, :, row]) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(32)
    return keys


def repeats(first: Hashes, second: Hashes) -> Mask:
    """Mark documents whose 128-bit hash an earlier one has."""
    order = np.lexsort((second, first))  # stable: the earlier stays before the later
    same = np.ones(len(order), dtype=np.bool_)
    for column in (first, second):
        same[1:] &= column[order[1:]] == column[order[:-1]]
    same[:1] = False
    later = np.zeros(len(order), dtype=np.bool_)
    later[order[same]] = True
    return later


def near_repeats(
    documents: NDArray[np.int64],
    keys: Iterable[Hashes],
    rows_of: Callable[[NDArray[np.int64]], Signatures],
    threshold: float,
) -> Mask:
    """Mark those of `documents` with a MinHash similarity above `threshold` to an earlier one.

    Args:
        documents: their numbers, ascending.
        keys: for each band, the hash of every numbered document.
        rows_of: gives the signatures of documents by number.
        threshold: of the share of equal rows, which estimates the Jaccard similarity.
    """
    later = np.zeros(len(documents), dtype=np.bool_)
    for every in keys:
        key = every[documents]
        del every  # 8 bytes a document
        order = np.argsort(key, kind="stable")
        key = key[order]
        bucket = np.flatnonzero(key[1:] == key[:-1]) + 1  # positions with one before them
        for distance in range(1, COMPARED + 1):
            bucket = bucket[(bucket >= distance) & ~later[order[bucket]]]
            bucket = bucket[key[bucket] == key[bucket - distance]]
            if not len(bucket):
                break
            for start in range(0, len(bucket), _PAIRS):
                here = order[bucket[start : start + _PAIRS]]
                before = order[bucket[start : start + _PAIRS] - distance]
                equal = rows_of(documents[here]) == rows_of(documents[before])
                later[here[equal.mean(axis=1) > threshold]] = True
    return later
