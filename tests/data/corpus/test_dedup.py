"""Shingles and overlap."""

import random

import numpy as np

from bam_lab.data.corpus.dedup import Seen, Shingler, content_hash


def words(count, seed):
    generator = random.Random(seed)
    return [f"w{generator.randrange(5000)}" for _ in range(count)]


def test_a_part_lies_wholly_in_its_whole():
    text = words(2000, 1)
    seen = Seen()
    shingler = Shingler(8)
    seen.add(shingler(" ".join(text)))
    assert seen.overlap(shingler(" ".join(text[300:360]))) == 1.0
    assert seen.overlap(shingler(" ".join(words(400, 2)))) == 0.0


def test_overlap_estimates_the_exact_share():
    first, second = words(3000, 3), words(3000, 4)
    mixed = first[:900] + second[:2100]
    seen = Seen()
    seen.add(Shingler(8)(" ".join(first)))
    exact = len(grams(mixed) & grams(first)) / len(grams(mixed))
    assert abs(seen.overlap(Shingler(8)(" ".join(mixed))) - exact) < 0.05


def grams(text):
    return {tuple(text[i : i + 8]) for i in range(len(text) - 7)}


def test_shingles_know_the_order_of_words_but_not_case_or_marks():
    shingler = Shingler(3)
    text = " ".join(words(200, 5))
    assert np.array_equal(shingler(text), shingler(text.upper().replace(" ", ", ")))
    assert not np.array_equal(shingler(text), shingler(" ".join(reversed(text.split()))))


def test_about_half_of_the_shingles_are_sampled():
    assert 0.45 < len(Shingler(8)(" ".join(words(20000, 6)))) / 19993 < 0.55


def test_a_short_text_overlaps_nothing():
    assert Seen().overlap(Shingler(8)("one two three")) == 0.0
    assert len(Shingler(8)("")) == 0


def test_content_hash_is_of_the_text():
    assert content_hash("a") != content_hash("b")
    assert len(content_hash("a")) == 64
