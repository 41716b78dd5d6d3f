"""What a person sees while the graph runs."""

import io
import time
from pathlib import Path

import pytest
from fakes import graph, stage
from rich.console import Console

from bam_lab.run import progress
from bam_lab.run.context import Speed
from bam_lab.run.progress import Display, Whole, describe, duration


def test_duration_and_description() -> None:
    assert [duration(s) for s in (0, 59.6, 3723)] == ["0:00", "1:00", "1:02:03"]
    message = {"tokens_per_s": 12345.6, "seconds_left": 61.0, "note": ""}
    assert describe(message) == "12,346 tokens/s, 1:01 left"
    assert describe({"note": "fetching x"}) == "fetching x"


def test_speed_is_of_the_last_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    speed = Speed(steps=100, tokens_a_step=10)
    assert speed.at(0).tokens_per_s is None
    for step in range(1, 51):
        now[0] += 2.0 if step < 10 else 0.5
        found = speed.at(step)
    assert found.tokens_per_s == pytest.approx(20)
    assert found.seconds_left == pytest.approx(25)


def test_whole_graph_ignores_what_was_done_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    before, first, second = (stage(name, tmp_path) for name in ("before", "first", "second"))
    whole = Whole(graph(before, first, second))
    whole.set(before.fingerprint, 1.0, skipped=True)
    assert whole.seconds_left() is None
    now[0] = 10.0
    whole.set(first.fingerprint, 1.0)
    assert whole.seconds_left() == pytest.approx(10)
    whole.set(second.fingerprint, 0.5)
    assert whole.seconds_left() == pytest.approx(10 / 3)


@pytest.mark.parametrize("terminal", [True, False])
def test_display_tells_the_story(
    terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", -1.0)
    good, bad = stage("good", tmp_path), stage("bad", tmp_path)
    after = stage("after", tmp_path, needs=(bad,))
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=120)
    message = {"step": 3, "steps": 10, "tokens_per_s": 100.0, "seconds_left": 7.0, "note": ""}
    with Display(graph(good, bad, after), console) as display:
        display.state(good, "running")
        display.progress(good, message)
        time.sleep(0.3)  # bars are drawn ten times a second
        display.state(good, "done")
        display.state(bad, "running")
        display.state(bad, "failed", "the loss is not finite")
        display.state(after, "missing", "because bad failed: the loss is not finite")
    shown = text.getvalue()
    assert "done     good in 0:00 [1/3]" in shown
    assert "failed   bad: the loss is not finite [2/3]" in shown
    assert "missing  after: because bad failed [3/3]" in shown
    assert "100 tokens/s, 0:07 left" in shown
    assert ("all stages" in shown) is terminal
