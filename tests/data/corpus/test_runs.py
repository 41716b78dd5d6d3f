"""Hashes of runs of words, against runs cut by hand."""

import random
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bam_lab.data.corpus import runs as module
from bam_lab.data.corpus.runs import Runs, together


@pytest.fixture(scope="module")
def three():
    return Runs(3)


@pytest.fixture(scope="module")
def one():
    return Runs(1)


def words(count, seed, vocabulary=5000):
    generator = random.Random(seed)
    return [f"w{generator.randrange(vocabulary)}" for _ in range(count)]


def cut(text, count):
    """Return the runs of a text: the plain way."""
    found = re.findall(r"\w+", text.lower())
    return [tuple(found[i : i + count]) for i in range(len(found) - count + 1)]


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=9).map(" ".join), max_size=6))
def test_equal_runs_and_no_others_have_equal_hashes(three, texts):
    hashes, counts = three(texts)
    plain = [run for text in texts for run in cut(text, 3)]
    assert counts.tolist() == [len(cut(text, 3)) for text in texts]
    assert len(hashes) == len(plain)
    assert len(set(zip(hashes.tolist(), plain, strict=True))) == len(set(plain))
    assert len(set(hashes.tolist())) == len(set(plain))


def test_runs_know_the_order_of_words_but_not_case_or_marks():
    runs = Runs(3)
    text = " ".join(words(200, 5))
    assert np.array_equal(runs([text])[0], runs([text.upper().replace(" ", ", ")])[0])
    assert not np.array_equal(runs([text])[0], runs([" ".join(reversed(text.split()))])[0])


def test_hashes_are_those_of_every_machine():
    assert Runs(2)(["one two three"])[0].tolist() == [10890347409995584146, 2555571544114235918]


def test_a_short_text_has_one_shingle_and_no_run():
    runs = Runs(3)
    texts = ["", "one two three four", "one two", "ONE, two!", "two one"]
    assert runs(texts)[1].tolist() == [0, 2, 0, 0, 0]
    shingles, counts = runs.shingles(texts)
    assert counts.tolist() == [1, 2, 1, 1, 1]
    assert shingles[1:3].tolist() == runs(texts)[0].tolist()
    assert shingles[3] == shingles[4] != shingles[5]


@given(st.lists(st.text(), max_size=5))
def test_words_are_those_of_a_regular_expression(one, texts):
    hashes, counts = one(texts)
    plain = [re.findall(r"\w+", text.lower()) for text in texts]
    assert counts.tolist() == [len(found) for found in plain]
    flat = [word for found in plain for word in found]
    assert len(set(zip(hashes.tolist(), flat, strict=True))) == len(set(flat))
    assert len(set(hashes.tolist())) == len(set(flat))


def test_words_have_hashes_of_their_own():
    letters = [
        f"{a}{b}{c}{d}" for a in "abcdxyz019_" for b in "abcpq59é" for c in "aef8" for d in "ab"
    ]
    numbers = [str(n) for n in range(20000)]
    assert len(set(Runs(1)([" ".join([*letters, *numbers])])[0].tolist())) == len(
        {*letters, *numbers}
    )


@pytest.mark.parametrize("sizes", [[], [1], [3, 1, 4, 1, 5], [9, 1]])
def test_together_keeps_all_in_order(monkeypatch, sizes):
    monkeypatch.setattr(module, "TOGETHER", 4)
    batches = list(together(sizes, int))
    assert [size for batch in batches for size in batch] == sizes
    assert all(sum(batch[:-1]) < 4 for batch in batches)
