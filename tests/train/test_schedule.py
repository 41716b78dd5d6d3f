"""The learning rate at its corners, and that it needs nothing but the step."""

import pytest

from bam_lab.train.schedule import learning_rate

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
