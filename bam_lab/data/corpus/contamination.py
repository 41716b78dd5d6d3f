"""Keep held-out text out of training, and count what evaluation items stand in it.

Both are judged by exact runs of 13 words, by their 64-bit hashes. The runs of held-out documents
and evaluation items lie in one sorted array, the table; training text is streamed past it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bam_lab.data.corpus.runs import Hashes

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

_FILTER_BITS = np.uint64((1 << 26) - 1)


class Table:
    """Find runs in a sorted array of them."""

    def __init__(self, runs: Hashes):
        """Take the sorted, distinct runs."""
        self._runs = runs
        # 8 MB: most runs of training text end here, without a search through the whole array.
        self._filter = np.zeros(int(_FILTER_BITS + np.uint64(1)) // 8, dtype=np.uint8)
        low = runs & _FILTER_BITS
        np.bitwise_or.at(self._filter, low >> np.uint64(3), _bit(low))

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._runs)

    def find(self, runs: Hashes) -> Places:
        """Return the places in the table of those runs that stand in it."""
        low = runs & _FILTER_BITS
        runs = runs[(self._filter[low >> np.uint64(3)] & _bit(low)) != 0]
        places = np.searchsorted(self._runs, runs)
        places[places == len(self._runs)] = 0
        return places[self._runs[places] == runs] if len(self._runs) else places[:0]


def _bit(low: Hashes) -> NDArray[np.uint8]:
    return np.left_shift(np.uint8(1), (low & np.uint64(7)).astype(np.uint8))


@dataclass(frozen=True)
class Texts:
    """Hold some texts by their runs in the table.

    Attributes:
        places: of the distinct runs of every text, one text after the other.
        counts: runs of each text; those of fewer than 13 words have none.
    """

    places: Places
    counts: NDArray[np.int64]

    def hits(self, found: Mask) -> NDArray[np.int64]:
        """Return how many runs of each text are among those found."""
        total = np.concatenate([[0], np.cumsum(found[self.places])])
        ends = np.cumsum(self.counts)
        return np.asarray(total[ends] - total[ends - self.counts], dtype=np.int64)

    def of(self, chosen: Mask) -> Places:
        """Return the distinct places of some of the texts."""
        return np.unique(self.places[np.repeat(chosen, self.counts)])


@dataclass
class HeldOut:
    """Follow a domain's held-out documents.

    Attributes:
        whole: whether the domain is held out as a whole: what overlaps is dropped, not moved.
        out: the documents that are no longer held out.
    """

    texts: Texts
    whole: bool
    out: Mask


def settle(domains: dict[str, HeldOut], found: dict[str, Mask], overlap: float) -> None:
    """Move held-out documents that repeat training text into training, until none is left.

    Each move adds to training text, so that it can cause others; the loop ends at the fixed point,
    where no held-out document has more than `overlap` of its runs in the training text of any
    domain. `HeldOut.out` and `found` change.

    Args:
        domains: the held-out documents of each.
        found: for each domain that is trained on, which runs of the table stand in its training.
        overlap: share of a document's distinct runs.
    """
    anywhere = np.zeros(len(next(iter(found.values()))), dtype=np.bool_)
    for mask in found.values():
        anywhere |= mask
    changed = True
    while changed:
        changed = False
        for name, held_out in domains.items():
            hits, counts = held_out.texts.hits(anywhere), held_out.texts.counts
            late = ~held_out.out & (hits > overlap * counts)
            held_out.out |= late
            if late.any() and not held_out.whole:
                added = held_out.texts.of(late)
                found[name][added] = anywhere[added] = True
                changed = True
