"""Hash the runs of words of texts: shingles of 8 for near duplicates, of 13 for contamination.

Words are runs of letters, digits and underscores, in lower case. Hashes are 64 bits wide and the
same on every machine; two different runs get the same one with a probability near 2^-64.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Item = TypeVar("Item")

CONTAMINATION_WORDS = 13
TOGETHER = 1_000_000
_CODE_POINTS = 0x110000
_FACTOR = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class Runs:
    """Hash the runs of `words` words of texts."""

    def __init__(self, words: int):
        """Hash runs of `words` words."""
        self.words = words
        self._in_word = _in_word()

    def __call__(self, texts: Sequence[str]) -> tuple[Hashes, NDArray[np.int64]]:
        """Return the runs of all texts one after the other, and how many are of each text."""
        return self._cut(*self._hash_words(texts))

    def shingles(self, texts: Sequence[str]) -> tuple[Hashes, NDArray[np.int64]]:
        """Return the same, but for a text of fewer words the one run of all that it has."""
        hashes, lengths = self._hash_words(texts)
        runs, counts = self._cut(hashes, lengths)
        short = np.flatnonzero(counts == 0)
        ends = np.cumsum(lengths)
        alone = []
        for text in short.tolist():
            value = int(lengths[text])
            for word in hashes[ends[text] - lengths[text] : ends[text]].tolist():
                value = (value * _FACTOR + word) & _MASK
            alone.append(value)
        starts = np.cumsum(counts) - counts
        filled = np.insert(runs, starts[short], np.array(alone, dtype=np.uint64))
        return filled, np.maximum(counts, 1)

    def _hash_words(self, texts: Sequence[str]) -> tuple[Hashes, NDArray[np.int64]]:
        """Return the hash of every word of all texts, and how many words each text has."""
        lower = [text.lower() for text in texts]
        codes = np.frombuffer("\n".join(lower).encode("utf-32-le"), "<u4")
        inside = self._in_word[codes]
        before = np.concatenate([[False], inside[:-1]])
        starts = np.flatnonzero(inside & ~before)
        letters = codes[inside].astype(np.uint64) + np.uint64(1)
        of_starts = np.flatnonzero(~before[inside])
        sizes = np.diff(of_starts, append=len(letters))
        place = np.arange(len(letters)) - np.repeat(of_starts, sizes)
        letters *= _powers(int(sizes.max(initial=0)))[place]  # wraps at 2^64, as meant
        hashes = np.add.reduceat(letters, of_starts) if len(of_starts) else letters
        ends = np.cumsum([len(text) + 1 for text in lower], dtype=np.int64)
        return _mixed(hashes), np.diff(np.searchsorted(starts, ends), prepend=0)

    def _cut(self, hashes: Hashes, lengths: NDArray[np.int64]) -> tuple[Hashes, NDArray[np.int64]]:
        count = max(len(hashes) - self.words + 1, 0)
        rolled = np.zeros(count, dtype=np.uint64)
        for position, factor in enumerate(_powers(self.words)):
            rolled += hashes[position : position + count] * factor
        text_of = np.repeat(np.arange(len(lengths)), lengths)
        inside = text_of[:count] == text_of[self.words - 1 :]  # a run ends where its text does
        return _mixed(rolled[inside]), np.maximum(lengths - self.words + 1, 0)


@cache
def _in_word() -> NDArray[np.bool_]:
    """Return for every code point whether it is part of a word, as `isalnum` and `_` have it."""
    letters = map(str.isalnum, map(chr, range(_CODE_POINTS)))
    table = np.fromiter(letters, np.bool_, _CODE_POINTS)
    table[ord("_")] = True
    return table


def _powers(count: int) -> Hashes:
    factors = np.full(count, _FACTOR, dtype=np.uint64)
    factors[:1] = 1
    return np.cumprod(factors, dtype=np.uint64)


def _mixed(values: Hashes) -> Hashes:
    """Spread sums over all bits, in place."""
    values ^= values >> np.uint64(29)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(32)
    return values


def together(items: Iterable[Item], size_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield the items in batches of about `TOGETHER` characters."""
    batch: list[Item] = []
    size = 0
    for item in items:
        batch.append(item)
        size += size_of(item)
        if size >= TOGETHER:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
