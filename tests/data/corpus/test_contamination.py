"""Held-out text that stands in training: against sets, and on cases with known answers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bam_lab.data.corpus.contamination import HeldOut, Table, Texts, settle

runs = st.sets(st.integers(0, 30), max_size=8)


def texts(sets):
    flat = [run for found in sets for run in sorted(found)]
    return Texts(np.array(flat, np.int64), np.array([len(found) for found in sets], np.int64))


@given(st.sets(st.integers(0, 2**64 - 1)), st.lists(st.integers(0, 2**64 - 1)))
def test_the_table_finds_what_is_in_it(held, others):
    table = Table(np.array(sorted(held), np.uint64))
    asked = [*others, *sorted(held)[::2]]
    found = table.find(np.array(asked, np.uint64))
    assert [sorted(held)[place] for place in found] == [run for run in asked if run in held]
    assert len(table) == len(held)


@given(st.lists(runs, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6), runs)
def test_texts_count_their_hits(sets, chosen, found):
    mask = np.isin(np.arange(31), list(found))
    held = texts(sets)
    assert held.hits(mask).tolist() == [len(one & found) for one in sets]
    some = chosen[: len(sets)]
    union = set().union(*(one for one, taken in zip(sets, some, strict=True) if taken))
    assert held.of(np.array(some, bool)).tolist() == sorted(union)


def plain(domains, training, overlap):
    """Move one document at a time until none is left."""
    training = {name: set(found) for name, found in training.items()}
    out = {name: [False] * len(sets) for name, (sets, _) in domains.items()}
    while True:
        everywhere = set().union(*training.values())
        late = [
            (name, place)
            for name, (sets, _) in domains.items()
            for place, found in enumerate(sets)
            if not out[name][place] and len(found & everywhere) > overlap * len(found)
        ]
        if not late:
            return out, training
        name, place = late[0]
        out[name][place] = True
        sets, whole = domains[name]
        if not whole:
            training[name] |= sets[place]


@given(
    st.lists(st.tuples(st.lists(runs, max_size=6), st.booleans(), runs), min_size=1, max_size=3),
    st.sampled_from([0.0, 0.2, 0.5, 1.0]),
)
def test_settling_ends_where_moving_one_at_a_time_ends(rows, overlap):
    domains = {str(n): (sets, whole) for n, (sets, whole, _) in enumerate(rows)}
    training = {str(n): set() if whole else found for n, (_, whole, found) in enumerate(rows)}
    held = {
        name: HeldOut(texts(sets), whole, np.zeros(len(sets), bool))
        for name, (sets, whole) in domains.items()
    }
    found = {name: np.isin(np.arange(31), list(some)) for name, some in training.items()}
    settle(held, found, overlap)
    out, trained = plain(domains, training, overlap)
    assert {name: one.out.tolist() for name, one in held.items()} == out
    assert {name: set(np.flatnonzero(mask).tolist()) for name, mask in found.items()} == trained


def test_a_move_can_cause_another_in_another_domain():
    held = {
        "a": HeldOut(texts([{1, 2}]), False, np.zeros(1, bool)),
        "b": HeldOut(texts([{2, 3}, {8, 9}]), False, np.zeros(2, bool)),
        "whole": HeldOut(texts([{3, 4}, {4, 5}]), True, np.zeros(2, bool)),
    }
    found = {name: np.zeros(10, bool) for name in held}
    found["b"][1] = True
    settle(held, found, 0.2)
    assert held["a"].out.tolist() == [True]
    assert held["b"].out.tolist() == [True, False]
    assert held["whole"].out.tolist() == [True, False]  # dropped: its 4 was never trained on
    assert np.flatnonzero(found["b"]).tolist() == [1, 2, 3]
