"""The learning rate at its corners, and that it needs nothing but the step."""

import pytest

from bam_lab.train.schedule import learning_rate, stable_then_decay

SETTINGS = {"steps": 101, "peak": 2.0, "warmup_steps": 10, "final_share": 0.1}


@pytest.mark.parametrize(
    ("step", "lr"), [(0, 0.2), (4, 1.0), (9, 2.0), (10, 2.0), (55, 1.1), (100, 0.2), (200, 0.2)]
)
def test_corners(step, lr):
    assert learning_rate(step, **SETTINGS) == pytest.approx(lr)


def test_it_rises_then_falls():
    rates = [learning_rate(step, **SETTINGS) for step in range(101)]
    assert rates[:10] == sorted(rates[:10])
    assert rates[10:] == sorted(rates[10:], reverse=True)


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (1, 5), (2, 1), (5, 5), (5, 4)])
def test_short_phases(steps, warmup):
    settings = SETTINGS | {"steps": steps, "warmup_steps": warmup}
    for step in range(steps):
        assert 0 < learning_rate(step, **settings) <= 2.0


STABLE = SETTINGS | {"decay_steps": 20}


@pytest.mark.parametrize(
    ("step", "lr"),
    [(0, 0.2), (9, 2.0), (10, 2.0), (80, 2.0), (85, 1.1), (100, 0.2), (200, 0.2)],
)
def test_corners_of_the_stable_run_and_its_decay(step, lr):
    """A quarter of the way down, the root has done half of it."""
    assert stable_then_decay(step, **STABLE) == pytest.approx(lr)


def test_lengths_share_the_stable_run():
    short, long = (STABLE | {"steps": steps} for steps in (101, 401))
    rates = [[stable_then_decay(step, **given) for step in range(101)] for given in (short, long)]
    assert rates[0][:81] == rates[1][:81]
    assert rates[0][81:] == sorted(rates[0][81:], reverse=True)
    assert max(rates[0][81:]) < 2.0 == rates[1][81]
    cosines = [
        [learning_rate(step, **SETTINGS | {"steps": s}) for step in (40, 80)] for s in (101, 401)
    ]
    assert cosines[0] != cosines[1]


def test_a_stable_run_that_goes_on_does_not_decay():
    assert stable_then_decay(100, **STABLE | {"decay_steps": 0}) == 2.0
