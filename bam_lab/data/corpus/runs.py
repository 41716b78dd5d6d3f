"""Hash the runs of words of texts: shingles of 8 for near duplicates, of 13 for contamination.

Words are runs of letters, digits and underscores, in lower case. Hashes are 64 bits wide and the
same on every machine; two different runs get the same one with a probability near 2^-64.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

Item = TypeVar("Item")

CONTAMINATION_WORDS = 13
TOGETHER = 1_000_000
_WORD = re.compile(r"\w+")
_REMEMBERED = 200_000


class _Words(dict[str, int]):
    """Hash words; remember those met, up to a number of them."""

    def __missing__(self, word: str) -> int:
        if len(self) >= _REMEMBERED:
            self.clear()
        digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
        value = self[word] = int.from_bytes(digest, "little")
        return value


class Runs:
    """Hash the runs of `words` words of texts."""

    def __init__(self, words: int):
        """Hash runs of `words` words."""
        self.words = words
        self._hashes = _Words()
        self._factors = [np.uint64(pow(0x9E3779B97F4A7C15, n, 1 << 64)) for n in range(words)]

    def __call__(self, texts: Sequence[str]) -> tuple[Hashes, NDArray[np.int64]]:
        """Return the runs of all texts one after the other, and how many are of each text."""
        found = [_WORD.findall(text.lower()) for text in texts]
        lengths = np.fromiter(map(len, found), np.int64, len(found))
        total = int(lengths.sum())
        words = chain.from_iterable(found)
        hashes = np.fromiter(map(self._hashes.__getitem__, words), np.uint64, total)
        count = max(total - self.words + 1, 0)
        text_of = np.repeat(np.arange(len(found)), lengths)
        inside = text_of[:count] == text_of[self.words - 1 :]  # a run ends where its text does
        return self._roll(hashes, count)[inside], np.maximum(lengths - self.words + 1, 0)

    def shingles(self, texts: Sequence[str]) -> tuple[Hashes, NDArray[np.int64]]:
        """Return the same, but for a text of fewer words the one run of all that it has."""
        runs, counts = self(texts)
        short = np.flatnonzero(counts == 0)
        alone = [self._hashes[" ".join(_WORD.findall(texts[i].lower()))] for i in short.tolist()]
        starts = np.cumsum(counts) - counts
        filled = np.insert(runs, starts[short], np.array(alone, dtype=np.uint64))
        return filled, np.maximum(counts, 1)

    def _roll(self, hashes: Hashes, count: int) -> Hashes:
        rolled = np.zeros(count, dtype=np.uint64)
        for position, factor in enumerate(self._factors):
            rolled += hashes[position : position + count] * factor  # wraps at 2^64, as meant
        rolled ^= rolled >> np.uint64(29)
        rolled *= np.uint64(0xBF58476D1CE4E5B9)
        rolled ^= rolled >> np.uint64(32)
        return rolled


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
