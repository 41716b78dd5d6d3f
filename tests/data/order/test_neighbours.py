import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bam_lab.data.order import neighbours
from bam_lab.data.order.embed import unit
from bam_lab.errors import InputError


def plain(vectors, count):
    """Sort all others of each document: most similar first, then by number."""
    scores = vectors @ vectors.T
    found = []
    for i, row in enumerate(scores):
        others = sorted((j for j in range(len(row)) if j != i), key=lambda j: (-row[j], j))
        found.append(others[:count])
    return np.array(found, dtype=np.int32).reshape(len(vectors), -1)


def some(total, dim=8, seed=0):
    return unit(np.random.default_rng(seed).standard_normal((total, dim)))


# Whole numbers: products are exact, so that equal similarities are equal and blocks cannot differ.
TIED = st.integers(1, 12).flatmap(
    lambda total: st.lists(
        st.lists(st.integers(-2, 2), min_size=3, max_size=3), min_size=total, max_size=total
    )
)


@given(TIED, st.integers(1, 5), st.integers(1, 40), st.integers(1, 3))
@settings(deadline=None)
def test_exact_is_the_plain_search_whatever_ties_blocks_and_threads(rows, count, scores, workers):
    vectors = np.array(rows, dtype=np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "_SCORES", scores)
        found = neighbours.exact(vectors, count, workers)
    expected = plain(vectors, count)
    np.testing.assert_array_equal(found.numbers, expected)
    similarities = np.take_along_axis(vectors @ vectors.T, expected, axis=1)
    np.testing.assert_array_equal(found.similarities, similarities)


def test_threads_change_no_bit(monkeypatch):
    monkeypatch.setattr(neighbours, "_SCORES", 500 * 37)
    vectors = some(500, 64)
    one, three = (neighbours.exact(vectors, 10, workers) for workers in (1, 3))
    np.testing.assert_array_equal(one.numbers, three.numbers)
    np.testing.assert_array_equal(one.similarities, three.similarities)


def test_renumbered_documents_have_renumbered_neighbours():
    vectors, places = some(200), np.random.default_rng(1).permutation(200)
    found = neighbours.exact(vectors, 5).numbers
    moved = neighbours.exact(vectors[places], 5).numbers
    np.testing.assert_array_equal(places[moved], found[places])


def test_documents_without_words_are_equally_far_from_all():
    found = neighbours.exact(np.zeros((5, 1), np.float32), 2)
    assert found.numbers.tolist() == [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1]]


def test_progress_adds_up_and_an_exception_ends_the_search(monkeypatch):
    monkeypatch.setattr(neighbours, "_SCORES", 100 * 7)
    counts = []
    neighbours.exact(some(100), 3, 2, counts.append)
    assert counts == [7] * 14 + [2]

    def stop(count):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        neighbours.exact(some(100), 3, 2, stop)


@pytest.mark.parametrize("total", [1, 2, 3, 300])
def test_flat_faiss_is_exact(total):
    vectors = some(total)
    found, expected = neighbours.by_faiss(vectors, 10), neighbours.exact(vectors, 10)
    np.testing.assert_array_equal(found.numbers, expected.numbers)
    np.testing.assert_allclose(found.similarities, expected.similarities, atol=1e-6)


def test_faiss_in_cells_finds_most_and_the_same_again():
    # Clusters, as text has them: spread evenly, near ones lie across the borders of cells.
    centres = np.random.default_rng(0).standard_normal((40, 16))
    noise = np.random.default_rng(1).standard_normal((4000, 16)) * 0.3
    vectors = unit(np.repeat(centres, 100, axis=0) + noise)
    found, again = (neighbours.by_faiss(vectors, 10, rng_seed=3, flat=1000) for _ in range(2))
    np.testing.assert_array_equal(found.numbers, again.numbers)
    expected = neighbours.exact(vectors, 10)
    shared = [
        len(set(a) & set(b)) / 10 for a, b in zip(found.numbers, expected.numbers, strict=True)
    ]
    assert np.mean(shared) > 0.9
    assert (found.numbers != np.arange(4000)[:, None]).all()


def test_missing_faiss_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match=r"pip install 'bam-lab\[faiss\]', or write index: exact"):
        neighbours.by_faiss(some(3), 1)
