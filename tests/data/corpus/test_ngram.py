"""The byte n-gram against counting by hand, and the matrix of a corpus."""

import json
import math
import random
from collections import Counter, defaultdict

import numpy as np
import pytest

from bam_lab.data.corpus.ngram import NAME, ORDER, bits_per_byte, cross, sample, train

SEEN = b"the cat sat on the mat; the cat ate the rat.\0\xc3\xa9t\xc3\xa9 " * 3
OTHER = b"the dog sat on a cat.\0\xff\xfe\x00 unseen bytes Z"


def plain_bits(trained: bytes, tested: bytes) -> float:
    """Follow the formula byte by byte, with dictionaries."""
    after: dict[bytes, Counter[int]] = defaultdict(Counter)
    padded = b"\0" * (ORDER - 1) + trained
    for end in range(ORDER - 1, len(padded)):
        for order in range(ORDER):
            after[padded[end - order : end]][padded[end]] += 1

    def chance(history: bytes, byte: int) -> float:
        shorter = chance(history[1:], byte) if history else 1 / 256
        found = after.get(history)
        if not found:
            return shorter
        return (found[byte] + len(found) * shorter) / (found.total() + len(found))

    padded = b"\0" * (ORDER - 1) + tested
    ends = range(ORDER - 1, len(padded))
    return sum(-math.log2(chance(padded[e - ORDER + 1 : e], padded[e])) for e in ends) / len(tested)


@pytest.mark.parametrize(("trained", "tested"), [(SEEN, SEEN), (SEEN, OTHER), (b"", OTHER)])
def test_equals_the_formula(trained, tested):
    assert bits_per_byte(trained, tested) == pytest.approx(plain_bits(trained, tested), rel=1e-12)


def test_equals_the_formula_on_random_bytes():
    chance = random.Random(0)
    trained, tested = (bytes(chance.choices(range(0, 256, 37), k=400)) for _ in range(2))
    assert bits_per_byte(trained, tested) == pytest.approx(plain_bits(trained, tested), rel=1e-12)


def test_every_model_is_a_distribution():
    longest = train(SEEN)[-1]
    assert np.array_equal(np.bincount(np.searchsorted(longest.contexts, longest.grams >> 8)),
                          longest.kinds)  # fmt: skip
    total = sum(2 ** -bits_per_byte_of_last(SEEN, b"the ", byte) for byte in range(256))
    assert total == pytest.approx(1.0)


def bits_per_byte_of_last(trained, history, byte):
    whole = bits_per_byte(trained, history + bytes([byte])) * (len(history) + 1)
    return whole - bits_per_byte(trained, history) * len(history)


def test_untrained_takes_eight_bits():
    assert bits_per_byte(b"", OTHER) == 8.0


def test_a_corpus_is_told_apart(corpus_dir, tmp_path):
    for path in corpus_dir.iterdir():
        if path.name != NAME:
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / "math.train.jsonl").unlink()
    (tmp_path / "math.train.jsonl").touch()  # held out as a whole
    domains = ("general", "code", "law", "math")
    cross(tmp_path, domains)
    found = json.loads((tmp_path / NAME).read_text())
    bits = found["bits_per_byte"]
    assert set(bits) == {"general", "code", "law"}
    for tested in bits:
        assert min(bits, key=lambda row: bits[row][tested]) == tested
        assert bits[tested][tested] < found["equal_mix"][tested]
    assert set(found["equal_mix"]) == set(domains)
    texts = {name: sample(tmp_path, name, "train", 10**9) for name in bits}
    assert found["train_bytes"] == min(map(len, texts.values()))
    again = bits_per_byte(
        texts["code"][: found["train_bytes"]], sample(tmp_path, "law", "test", 10**9)
    )
    assert bits["code"]["law"] == again


def test_a_sample_is_the_first_bytes(corpus_dir):
    whole = sample(corpus_dir, "law", "train", 10**9)
    assert sample(corpus_dir, "law", "train", 1000) == whole[:1000]
    assert whole.endswith(b"\0")
