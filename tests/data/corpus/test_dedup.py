"""Equal and nearly equal documents, against a comparison of every pair."""

import os
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bam_lab.data.corpus import dedup
from bam_lab.data.corpus.runs import Runs


def words(count, seed):
    generator = random.Random(seed)
    return [f"w{generator.randrange(5000)}" for _ in range(count)]


def sketch(texts):
    return dedup.signatures(*Runs(8).shingles(texts))


def later(texts, threshold=0.8):
    found = sketch(texts)
    documents = np.arange(len(texts))
    keys = dedup.bands(found, dedup.band_rows(threshold)).T
    return dedup.near_repeats(documents, keys, lambda wanted: found[wanted], threshold)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12))
def test_repeats_are_what_was_met_before(pairs):
    table = np.array(pairs, np.uint64).reshape(-1, 2)
    plain = [pair in pairs[:place] for place, pair in enumerate(pairs)]
    assert dedup.repeats(table[:, 0], table[:, 1]).tolist() == plain


def test_the_later_of_two_near_duplicates_goes():
    text = words(400, 1)
    copy = [*text[:395], *words(5, 2)]  # shares 380 of 401 shingles
    half = [*text[:200], *words(200, 3)]
    texts = [" ".join(part) for part in (text, words(400, 4), copy, half)]
    assert later(texts).tolist() == [False, False, True, False]
    assert later(texts[::-1]).tolist() == [False, False, False, True]


def test_a_part_is_no_near_duplicate_of_its_whole():
    text = words(1000, 5)
    assert not later([" ".join(text), " ".join(text[:300])]).any()


def test_a_chain_goes_down_to_its_first():
    text = words(400, 6)
    steps = [" ".join([*words(15 * n, 7), *text[15 * n :]]) for n in range(6)]
    assert later(steps).tolist() == [False, *[True] * 5]


def near(original, edits, generator):
    changed = list(original)
    for place in generator.sample(range(len(changed)), edits):
        changed[place] = f"x{generator.randrange(10**9)}"
    return changed


def test_finds_what_a_comparison_of_every_pair_finds():
    generator = random.Random(8)
    documents = [words(generator.randrange(50, 300), seed) for seed in range(150)]
    for edits in range(1, 5):
        documents += [near(generator.choice(documents[:150]), edits, generator) for _ in range(40)]
    generator.shuffle(documents)
    found = sketch([" ".join(document) for document in documents])
    alike = (found[:, None] == found[None]).mean(axis=2) > 0.8
    plain = np.tril(alike, -1).any(axis=1)
    got = later([" ".join(document) for document in documents])
    assert plain.sum() > 60
    assert not (got & ~plain).any()
    assert (got & plain).sum() >= 0.97 * plain.sum()


def test_an_estimate_is_near_the_share_of_equal_shingles():
    first, second = words(1000, 9), words(1000, 10)
    for kept in (950, 700, 300):
        mixed = [*first[:kept], *second[kept:]]
        one, two = ({tuple(t[i : i + 8]) for i in range(len(t) - 7)} for t in (first, mixed))
        found = sketch([" ".join(first), " ".join(mixed)])
        exact = len(one & two) / len(one | two)
        assert abs((found[0] == found[1]).mean() - exact) < 0.12  # 3 standard errors


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7, 0.8, 0.9, 1.0])
def test_bands_find_pairs_at_the_threshold(threshold):
    rows = dedup.band_rows(threshold)
    assert 1 - (1 - threshold**rows) ** (dedup.PERMUTATIONS // rows) >= dedup.RECALL
    assert dedup.PERMUTATIONS % rows == 0


def test_a_large_bucket_is_no_trap(monkeypatch):
    monkeypatch.setattr(dedup, "_PAIRS", 7)
    text = words(200, 11)
    texts = [" ".join([*text, str(n)]) for n in range(100)]
    assert later(texts).tolist() == [False, *[True] * 99]


SIGN = """
from bam_lab.data.corpus import dedup
from bam_lab.data.corpus.runs import Runs
print(dedup.signatures(*Runs(8).shingles(["a b c d e f g h i j", "short"]))[:, :3].tolist())
"""


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_signatures_are_those_of_every_process_and_machine(hash_seed):
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    told = subprocess.run(
        [sys.executable, "-c", SIGN], env=environment, capture_output=True, text=True, check=True
    )
    known = "[[3453782223, 3240563180, 3601841301], [3526000578, 3877000153, 3789044011]]"
    assert told.stdout.strip() == known
