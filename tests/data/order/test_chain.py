import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bam_lab.data.order.chain import chain
from bam_lab.data.order.embed import unit
from bam_lab.data.order.neighbours import Neighbours, exact


def plain(found, traversal):
    """Say the rules again, with sets and no care for time."""
    total = len(found.numbers)
    weight = {}
    for i in range(total):
        for j, similarity in zip(found.numbers[i].tolist(), found.similarities[i], strict=True):
            if j < 0:
                continue
            for edge in [(i, j)] if traversal == "simple" else [(i, j), (j, i)]:
                weight[edge] = max(weight.get(edge, -np.inf), similarity)
    near = {i: [j for a, j in weight if a == i] for i in range(total)}
    left, order, restarts = set(range(total)), [], -1
    while left:
        restarts += 1
        here = min(left, key=lambda i: (len(near[i]) if traversal == "min_degree" else 0, i))
        while True:
            order.append(here)
            left.remove(here)
            ahead = [j for j in near[here] if j in left]
            if not ahead:
                break
            here = min(ahead, key=lambda j: (-weight[order[-1], j], j))
    return order, max(restarts, 0)


@st.composite
def graphs(draw):
    total, count = draw(st.integers(1, 15)), draw(st.integers(0, 4))
    number = st.integers(-1, total - 1)
    numbers = np.full((total, count), -1, np.int32)
    similarities = np.full((total, count), -np.inf, np.float32)
    for i in range(total):
        found = draw(st.lists(number, max_size=count, unique=True))
        found = [j for j in found if j not in (i, -1)]
        values = sorted(draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))[::-1]
        numbers[i, : len(found)], similarities[i, : len(found)] = found, values[: len(found)]
    return Neighbours(numbers, similarities)


@pytest.mark.parametrize("traversal", ["min_degree", "simple"])
@given(found=graphs())
def test_is_the_plain_walk_and_visits_each_once(found, traversal):
    made = chain(found, traversal)
    assert (made.order.tolist(), made.restarts) == plain(found, traversal)
    assert sorted(made.order.tolist()) == list(range(len(found.numbers)))


def line(*places):
    """Return documents on a quarter circle, so that near places are similar."""
    angles = np.array(places) / 100
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_the_two_traversals_on_a_case_by_hand():
    # 0 and 1 are each other's nearest, 2's nearest is 1, 3's is 2: as a path 0 - 1 - 2 - 3.
    found = exact(line(10, 11, 13, 17), 1)
    assert found.numbers.tolist() == [[1], [0], [1], [2]]
    simple = chain(found, "simple")
    # From 1 there is only 0 to go on to; 2 starts anew, and so does 3.
    assert (simple.order.tolist(), simple.restarts) == ([0, 1, 2, 3], 2)
    by_degree = chain(found, "min_degree")
    assert (by_degree.order.tolist(), by_degree.restarts) == ([0, 1, 2, 3], 0)


def test_restarts_at_the_fewest_edges():
    # 1 - 0 - 2 with 0 the nearest of both: ends have one edge, the middle has two.
    found = exact(line(50, 40, 61), 1)
    assert chain(found, "simple").order.tolist() == [0, 1, 2]
    assert chain(found, "min_degree").order.tolist() == [1, 0, 2]


def test_renumbered_documents_are_chained_alike_where_the_start_is_the_same():
    vectors = unit(np.random.default_rng(0).standard_normal((60, 4)))
    places = np.concatenate([[0], 1 + np.random.default_rng(1).permutation(59)])
    # With all others as neighbours there is one start and no tie.
    order = chain(exact(vectors, 59), "simple").order
    moved = chain(exact(vectors[places], 59), "simple").order
    assert places[moved].tolist() == order.tolist()
