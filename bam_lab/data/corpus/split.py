"""Choose documents up to every cap, and split them into train, valid and test by their content."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bam_lab.spec.corpus import DomainSource, HoldOut

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")

MEGABYTE = 1_000_000
_TOGETHER = 100_000


def by_hash(hashes: NDArray[np.uint64], hold_out: HoldOut) -> NDArray[np.uint8]:
    """Return the split (index into `SPLITS`) of documents by the first 64 bits of their hash.

    The same text has the same split wherever and whenever it is met.
    """
    place = (hashes >> np.uint64(12)) / 2.0**52
    held_out = np.where(place < hold_out.test, SPLITS.index("test"), SPLITS.index("valid"))
    return np.where(place < hold_out.test + hold_out.valid, held_out, 0).astype(np.uint8)


def within_caps(
    order: NDArray[np.int64],
    sizes: NDArray[np.int64],
    sources: NDArray[np.integer[Any]],
    domain: DomainSource,
) -> NDArray[np.bool_]:
    """Mark the documents that stay.

    A domain above its cap loses the same share of every source.

    Args:
        order: the documents in the order in which they are taken.
        sizes: bytes of each document.
        sources: number of each document's source.
        domain: names the caps.
    """
    totals = np.bincount(sources[order], sizes[order], minlength=len(domain.sources)).astype(
        np.int64
    )
    limits = [
        min(int(total), source.max_megabytes * MEGABYTE)
        for total, source in zip(totals, domain.sources, strict=True)
    ]
    shrink = min(1.0, domain.max_megabytes * MEGABYTE / max(sum(limits), 1))
    kept = np.zeros(len(sizes), dtype=np.bool_)
    for number, limit in enumerate(limits):
        mine = order[sources[order] == number]
        if totals[number] <= limit * shrink:
            kept[mine] = True
        else:
            kept[mine] = _fitting(sizes[mine], limit * shrink)
    return kept


def above_limit(
    order: NDArray[np.int64], sizes: NDArray[np.int64], hold_out: HoldOut
) -> NDArray[np.int64]:
    """Return those of one split's documents that are too many for it.

    Args:
        order: the split's documents in the order in which they are taken.
        sizes: bytes of every document of the domain.
        hold_out: names the limit.
    """
    return order[np.cumsum(sizes[order]) > hold_out.max_megabytes * MEGABYTE]


def _fitting(sizes: NDArray[np.int64], limit: float) -> NDArray[np.bool_]:
    """Take what still fits, one after the other."""
    used = 0
    kept = np.zeros(len(sizes), dtype=np.bool_)
    for start in range(0, len(sizes), _TOGETHER):
        for place, size in enumerate(sizes[start : start + _TOGETHER].tolist(), start):
            if used + size <= limit:
                used += size
                kept[place] = True
    return kept
