"""Splits: by content, and honest."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bam_lab.data.corpus.dedup import Seen, content_hash
from bam_lab.data.corpus.split import SPLITS, by_hash, move_overlapping
from bam_lab.spec.corpus import HoldOut

documents = st.lists(
    st.tuples(st.sampled_from(SPLITS), st.sets(st.integers(0, 30), max_size=8)), max_size=12
)


@given(documents, st.sampled_from([0.0, 0.2, 0.5]))
def test_moving_ends_with_no_overlap_and_takes_nothing_out_of_training(rows, overlap):
    before = [split for split, _ in rows]
    shingles = [np.array(sorted(found), dtype=np.uint64) for _, found in rows]
    after, moved = move_overlapping(before, shingles, overlap)
    assert moved == sum(a != b for a, b in zip(after, before, strict=True))
    training = Seen()
    for split, found in zip(after, shingles, strict=True):
        if split == "train":
            training.add(found)
    for old, new, found in zip(before, after, shingles, strict=True):
        assert new in (old, "train")
        if new != "train":
            assert training.overlap(found) <= overlap


def test_a_move_can_cause_another():
    first, second, third = (np.array(x, dtype=np.uint64) for x in ([1, 2], [2, 3], [3, 4]))
    splits, moved = move_overlapping(["train", "test", "valid"], [first, second, third], 0.2)
    assert (splits, moved) == (["train", "train", "train"], 2)


def test_shares_are_those_asked_and_a_text_keeps_its_place():
    hold_out = HoldOut(valid=0.1, test=0.2)
    splits = [by_hash(content_hash(str(n)), hold_out) for n in range(5000)]
    assert abs(splits.count("test") / 5000 - 0.2) < 0.02
    assert abs(splits.count("valid") / 5000 - 0.1) < 0.02
    smaller = HoldOut(valid=0.0, test=0.1)
    for n in range(200):
        if by_hash(content_hash(str(n)), smaller) == "test":
            assert splits[n] == "test"
