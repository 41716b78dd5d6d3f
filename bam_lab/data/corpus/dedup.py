"""Find documents that repeat others: by exact hash, and by the share of word shingles seen before.

Overlap is counted exactly over a fixed sample of shingles, in place of MinHash: legal texts repeat
by containment (a notice inside a licence), which MinHash's Jaccard similarity of whole documents
does not see, and the same count serves the law on held-out documents in `split.py`.
"""

import hashlib
import re

import numpy as np
from numpy.typing import NDArray

Shingles = NDArray[np.uint64]

_SAMPLE = np.uint64(2)  # every second shingle, by its hash: the same ones in every document
_WORD = re.compile(r"\w+")


def content_hash(text: str) -> str:
    """Return the SHA-256 of a text: its identity, and what its split is drawn by."""
    return hashlib.sha256(text.encode()).hexdigest()


class Shingler:
    """Hash the runs of `words` words of a text; remembers the hashes of words it has met."""

    def __init__(self, words: int):
        """Hash runs of `words` words."""
        self.words = words
        self._hashes: dict[str, int] = {}
        self._factors = [np.uint64(pow(0x9E3779B97F4A7C15, n, 1 << 64)) for n in range(words)]

    def __call__(self, text: str) -> Shingles:
        """Return the distinct sampled shingles of a text, sorted."""
        words = _WORD.findall(text.lower())
        hashes = np.fromiter(map(self._word, words), dtype=np.uint64, count=len(words))
        count = max(len(words) - self.words + 1, 0)
        rolled = np.zeros(count, dtype=np.uint64)
        for position, factor in enumerate(self._factors):
            rolled += hashes[position : position + count] * factor  # wraps at 2^64, as meant
        rolled ^= rolled >> np.uint64(29)
        rolled *= np.uint64(0xBF58476D1CE4E5B9)
        rolled ^= rolled >> np.uint64(32)
        return np.unique(rolled[rolled % _SAMPLE == 0])

    def _word(self, word: str) -> int:
        known = self._hashes.get(word)
        if known is None:
            digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
            known = self._hashes[word] = int.from_bytes(digest, "little")
        return known


class Seen:
    """Remember the shingles of the documents kept so far."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._shingles: set[int] = set()

    def overlap(self, shingles: Shingles) -> float:
        """Return the share of these shingles that were seen; 0 for a text without any."""
        found = sum(map(self._shingles.__contains__, shingles.tolist()))
        return found / max(len(shingles), 1)

    def add(self, shingles: Shingles) -> None:
        """Remember these shingles."""
        self._shingles.update(shingles.tolist())
