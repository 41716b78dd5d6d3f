"""Batches: pure, without replacement within an epoch, true to the mix."""

import time
from collections import Counter

import numpy as np
import pytest

from bam_lab.data.tokens.batches import Batches
from bam_lab.data.tokens.encode import documents, stream
from bam_lab.errors import InputError

EQUAL = {"general": 0.25, "code": 0.25, "law": 0.25, "math": 0.25}
MIXES = [
    EQUAL,
    {"law": 0.9, "general": 0.1},
    {"general": 0.7, "code": 0.1, "law": 0.1, "math": 0.1},
    {"general": 0.997, "code": 0.001, "law": 0.001, "math": 0.001},
    {"code": 1 / 3, "law": 1 / 3, "math": 1 / 3},
    {"math": 1.0},
    {"math": 1.0, "law": 0.0},
]


def test_a_batch_depends_on_nothing_but_its_number(tokens_dir):
    forwards, backwards = (Batches(tokens_dir, EQUAL, 4, 32, 7) for _ in range(2))
    first = {i: forwards.batch(i) for i in range(60)}
    for i in reversed(range(60)):
        assert np.array_equal(backwards.batch(i), first[i])
    swapped = Batches(tokens_dir, dict(reversed(EQUAL.items())), 4, 32, 7)
    assert np.array_equal(swapped.batch(33), first[33])


def test_shape_type_and_overlap_by_one(tokens_dir):
    batches = Batches(tokens_dir, {"law": 1.0}, 4, 32, 0)
    assert batches.batch(0).shape == (4, 33)
    assert batches.batch(0).dtype == np.int64
    text = stream(tokens_dir, "law", "train")
    starts = {tuple(text[k * 32 : k * 32 + 33]) for k in range(batches.sequences["law"])}
    for i in range(5):
        assert {tuple(row) for row in batches.batch(i)} <= starts


def test_another_rng_seed_and_another_epoch_give_another_order(tokens_dir):
    one, other = (Batches(tokens_dir, {"law": 1.0}, 1, 32, seed) for seed in (0, 1))
    count = one.sequences["law"]
    orders = [
        np.concatenate([batches.batch(i) for i in range(start, start + count)])
        for batches, start in ((one, 0), (one, count), (other, 0))
    ]
    for i, first in enumerate(orders):
        for second in orders[:i]:
            assert not np.array_equal(first, second)


def test_an_epoch_takes_every_sequence_once(tokens_dir):
    batches = Batches(tokens_dir, {"law": 0.5, "code": 0.5}, 2, 32, 3)
    count = batches.sequences["law"]
    rows = Counter(tuple(batches.batch(i)[j]) for i in range(3 * count) for j in range(2))
    text = stream(tokens_dir, "law", "train")
    expected = Counter(tuple(text[k * 32 : k * 32 + 33]) for k in range(count))
    assert all(rows[row] == 3 * times for row, times in expected.items())


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("batch_sequences", [1, 7, 16])
def test_mix_is_true_at_every_moment(tokens_dir, mix, batch_sequences):
    batches = Batches(tokens_dir, mix, batch_sequences, 32, 0)
    drawn = dict.fromkeys(batches.weights, 0)
    for i in range(1500):
        for domain, draw in batches.draws(i):
            assert draw == drawn[domain], "draws are taken in order, none left out"
            drawn[domain] += 1
        total = (i + 1) * batch_sequences
        assert all(abs(drawn[domain] - total * mix[domain]) < 2 for domain in drawn)
        if i % 100 == 99:
            assert batches.drawn(i + 1) == drawn
    assert all(abs(n / sum(drawn.values()) - mix[d]) < 1.4e-3 for d, n in drawn.items())
    epochs = batches.epochs(1500)
    assert epochs == {d: n / batches.sequences[d] for d, n in drawn.items()}


def test_nothing_drawn_before_the_first_batch(tokens_dir):
    assert Batches(tokens_dir, EQUAL, 4, 32, 0).epochs(0) == dict.fromkeys(EQUAL, 0.0)


def test_too_little_text_is_said(tokens_dir):
    with pytest.raises(InputError, match="law must hold at least 100001 training tokens, got"):
        Batches(tokens_dir, {"law": 1.0}, 1, 100_000, 0)


def test_a_batch_is_fast(tokens_dir):
    batches = Batches(tokens_dir, EQUAL, 16, 256, 0)
    batches.batch(0)
    start = time.perf_counter()
    for i in range(100):
        batches.batch(i)
    assert (time.perf_counter() - start) / 100 < 2e-3  # 0.06 ms measured, with room for a busy CI


def test_parts_of_a_domain_share_no_document_and_are_all_of_it(tokens_dir):
    whole, index = (read(tokens_dir, "math", "train") for read in (stream, documents))
    texts = [tuple(whole[row["start"] : row["start"] + row["length"]]) for row in index]
    found = []
    for name in ("math.1of3", "math.2of3", "math.3of3"):
        part = stream(tokens_dir, name, "train")
        rows = documents(tokens_dir, name, "train")
        assert part.dtype == whole.dtype
        own = [tuple(part[row["start"] : row["start"] + row["length"]]) for row in rows]
        assert len(part) == sum(len(text) + 1 for text in own)
        found.append(own)
    assert [own[0] for own in found] == texts[:3]
    assert sorted(text for own in found for text in own) == sorted(texts)


def test_a_batch_of_a_part_reads_nothing_else(tokens_dir):
    batches = Batches(tokens_dir, {"law.2of2": 0.9, "general": 0.1}, 4, 16, 0)
    part = stream(tokens_dir, "law.2of2", "train")
    starts = {tuple(part[k * 16 : k * 16 + 17]) for k in range(batches.sequences["law.2of2"])}
    rows = [
        tuple(row)
        for i in range(5)
        for row, (domain, _) in zip(batches.batch(i), batches.draws(i), strict=True)
        if domain == "law.2of2"
    ]
    assert rows and starts.issuperset(rows)
