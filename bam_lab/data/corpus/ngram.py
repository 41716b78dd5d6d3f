"""Say how different the domains are: a byte 5-gram of each, tested on the text of every other.

Witten-Bell smoothing (Witten and Bell 1991), interpolated down to a uniform byte:

    p(w | h) = (c(h w) + t(h) p(w | h')) / (c(h) + t(h))

c counts, t(h) is how many different bytes followed h, and h' is h without its first byte. Every
model reads as many bytes as the smallest domain has, so that the matrix compares text and no sizes.
Documents are parted by a NUL byte, which is predicted too.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bam_lab.data.corpus.manifest import read_documents
from bam_lab.record.files import write_json

NAME = "crossed.json"
ORDER = 5
TRAIN_BYTES = 3_000_000
TEST_BYTES = 250_000
END = b"\0"
_FIRST = END * (ORDER - 1)

Codes = NDArray[np.int64]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class _Counts:
    """Hold one order's n-grams as sorted codes, and the contexts that they continue."""

    grams: Codes
    counts: Numbers
    contexts: Codes
    totals: Numbers
    kinds: Numbers


def cross(corpus_dir: Path, domains: Iterable[str]) -> None:
    """Write `crossed.json` beside a built corpus: bits per byte, row trained, column tested.

    A domain without training text has no row, one without test text no column.
    """
    domains = tuple(domains)
    texts = {name: sample(corpus_dir, name, "train", TRAIN_BYTES) for name in domains}
    texts = {name: text for name, text in texts.items() if text}
    length = min(map(len, texts.values()), default=0)
    share = length // len(texts) if texts else 0
    tests = {name: sample(corpus_dir, name, "test", TEST_BYTES) for name in domains}
    grams = {name: _test_grams(text) for name, text in tests.items() if text}
    rows = {}
    for name, text in texts.items():
        counts = train(text[:length])
        rows[name] = {other: _bits(counts, found) for other, found in grams.items()}
    counts = train(b"".join(text[:share] for text in texts.values()))
    mixed = {other: _bits(counts, found) for other, found in grams.items()}
    write_json(
        corpus_dir / NAME,
        {
            "order": ORDER,
            "train_bytes": length,
            "test_bytes": {name: len(tests[name]) for name in grams},
            "bits_per_byte": rows,
            "equal_mix": mixed,
        },
    )


def sample(corpus_dir: Path, domain: str, split: str, limit: int) -> bytes:
    """Return up to `limit` bytes of text; documents stand in hash order, so these are any."""
    parts: list[bytes] = []
    left = limit
    for document in read_documents(corpus_dir, domain, split):
        part = document["text"].encode() + END
        parts.append(part[:left])
        left -= len(parts[-1])
        if not left:
            break
    return b"".join(parts)


def bits_per_byte(trained: bytes, tested: bytes) -> float:
    """Return the bits that a model of one text needs for a byte of another."""
    return _bits(train(trained), _test_grams(tested))


def train(text: bytes) -> list[_Counts]:
    """Count the n-grams of a text, orders 1 to `ORDER`."""
    found, counts = np.unique(_codes(text), return_counts=True)
    made = []
    for order in range(1, ORDER + 1):
        grams, where = np.unique(found & _mask(order), return_inverse=True)
        summed: Numbers = np.bincount(where, weights=counts, minlength=len(grams)).astype(
            np.float64
        )
        contexts, starts, kinds = np.unique(grams >> 8, return_index=True, return_counts=True)
        totals: Numbers = np.add.reduceat(summed, starts) if len(starts) else summed
        made.append(_Counts(grams, summed, contexts, totals, kinds.astype(np.float64)))
    return made


def _codes(text: bytes) -> Codes:
    """Return the code of every byte with the `ORDER` - 1 before it; the byte is the lowest."""
    data = np.frombuffer(_FIRST + text, dtype=np.uint8)
    codes = np.zeros(len(text), dtype=np.int64)
    for shift in range(ORDER):
        codes = (codes << 8) | data[shift : shift + len(text)]
    return codes


def _mask(order: int) -> int:
    return (1 << 8 * order) - 1


def _test_grams(text: bytes) -> tuple[list[tuple[Codes, Codes]], Numbers]:
    """Return, order by order, (distinct codes, where each n-gram is in them); and their counts."""
    grams, counts = np.unique(_codes(text), return_counts=True)
    places = []
    for order in range(1, ORDER + 1):
        distinct, where = np.unique(grams & _mask(order), return_inverse=True)
        places.append((distinct, where))
    return places, counts.astype(np.float64)


def _bits(model: list[_Counts], tested: tuple[list[tuple[Codes, Codes]], Numbers]) -> float:
    places, times = tested
    chance = np.full(len(times), 1 / 256)
    for counts, (distinct, where) in zip(model, places, strict=True):
        seen = _look_up(counts.grams, counts.counts, distinct)[where]
        total = _look_up(counts.contexts, counts.totals, distinct >> 8)[where]
        kinds = _look_up(counts.contexts, counts.kinds, distinct >> 8)[where]
        known = total > 0
        # Where the context never stood in training, the shorter one decides.
        np.divide(seen + kinds * chance, total + kinds, out=chance, where=known)
    return float(-np.sum(times * np.log2(chance)) / np.sum(times))


def _look_up(keys: Codes, values: Numbers, wanted: Codes) -> Numbers:
    """Return the value of each wanted key; 0 for those that are not there."""
    if not len(keys):
        return np.zeros(len(wanted))
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    found: Numbers = np.where(keys[at] == wanted, values[at], 0.0)
    return found
