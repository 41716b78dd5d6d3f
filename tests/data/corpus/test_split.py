"""Splits and caps: by content, and against the plain way."""

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bam_lab.data.corpus.split import SPLITS, above_limit, by_hash, within_caps
from bam_lab.spec.corpus import HoldOut


def content_hash(text):
    return hashlib.sha256(text.encode()).hexdigest()


def hashes(count):
    return np.array([int(content_hash(str(n))[:16], 16) for n in range(count)], np.uint64)


def test_shares_are_those_asked_and_a_text_keeps_its_place():
    splits = by_hash(hashes(5000), HoldOut(valid=0.1, test=0.2))
    assert abs((splits == SPLITS.index("test")).mean() - 0.2) < 0.02
    assert abs((splits == SPLITS.index("valid")).mean() - 0.1) < 0.02
    fewer = by_hash(hashes(5000), HoldOut(valid=0.0, test=0.1))
    assert (splits[fewer == SPLITS.index("test")] == SPLITS.index("test")).all()
    for number in range(50):
        place = int(content_hash(str(number))[:13], 16) / 16**13
        plain = "test" if place < 0.2 else "valid" if place < 0.2 + 0.1 else "train"
        assert SPLITS[splits[number]] == plain


def test_a_domain_held_out_as_a_whole_trains_nothing():
    assert not (by_hash(hashes(2000), HoldOut(valid=0.3, test=0.7)) == 0).any()
    last = np.array([2**64 - 1], np.uint64)
    assert by_hash(last, HoldOut(valid=0.0, test=1.0)).tolist() == [SPLITS.index("test")]


documents = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 9)), max_size=30)


@given(documents, st.integers(1, 40), st.integers(1, 40), st.integers(1, 60))
def test_caps_take_what_fits_in_order(corpus_spec, rows, first, second, most):
    domain = corpus_spec.domains["law"]
    sources = tuple(
        source.model_copy(update={"max_megabytes": cap / 1e6})
        for source, cap in zip(domain.sources, (first, second), strict=True)
    )
    domain = domain.model_copy(update={"sources": sources, "max_megabytes": most / 1e6})
    of, sizes = np.array(rows, np.int64).reshape(-1, 2).T
    order = np.arange(len(rows))[::-1][1:]  # a duplicate is not among them
    kept = within_caps(order, sizes, of, domain)

    left = np.isin(np.arange(len(rows)), order)
    limits = [
        min(int(sizes[left & (of == n)].sum()), s.max_megabytes * 1e6)
        for n, s in enumerate(sources)
    ]
    shrink = min(1.0, domain.max_megabytes * 1e6 / max(sum(limits), 1))
    used, plain = [0, 0], set()
    for number in order.tolist():
        source, size = rows[number]
        if used[source] + size <= limits[source] * shrink:
            used[source] += size
            plain.add(number)
    assert set(np.flatnonzero(kept).tolist()) == plain


def test_what_is_above_the_limit_of_a_split_is_told():
    sizes = np.array([400_000, 300_000, 500_000, 200_000])
    limit = HoldOut(valid=0.1, test=0.1, max_megabytes=1.0)
    assert above_limit(np.array([3, 0, 1, 2]), sizes, limit).tolist() == [2]
    assert above_limit(np.array([], np.int64), sizes, limit).tolist() == []
