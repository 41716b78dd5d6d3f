"""The scheduler over fake stages: sharing, failing, dying, stopping."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fakes import COMMAND, SETTINGS, Recorder, graph, stage

from bam_lab.record.lease import acquire
from bam_lab.record.store import Store
from bam_lab.run.outcome import GraphRun
from bam_lab.run.scheduler import run_graph, unfinished

HERE = Path(__file__).parent


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.prepare()
    return store


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.02)


def lines(path: Path) -> list[str]:
    return [line.split(" ")[0] for line in path.read_text().splitlines()]


def test_runs_inputs_first_and_every_stage_once(store: Store, tmp_path: Path) -> None:
    attempts = tmp_path / "attempts"
    first = stage("first", attempts)
    left, right = (stage(name, attempts, needs=(first,)) for name in ("left", "right"))
    last = stage("last", attempts, needs=(left, right))
    whole = graph(first, left, right, last)
    recorder = Recorder()
    assert run_graph(whole, store, SETTINGS, recorder) == GraphRun(4, {})
    order = lines(attempts)
    assert sorted(order) == ["first", "last", "left", "right"]
    assert order[0] == "first" and order[-1] == "last"
    assert unfinished(whole, store) == []
    spec = json.loads((store.stage(first.key) / "spec.json").read_text())
    assert spec["label"] == "first" and spec["revision"] == 1
    manifest = json.loads((store.stage(first.key) / "manifest.json").read_text())
    assert manifest["numerics"] == {"precision": "float32", "device": "cpu", "threads": 1}
    assert ("first", "running", "") in recorder.states
    assert any(state.startswith("step") for _, state, _ in recorder.states)
    assert list((store.root / "leases").glob("*.json")) == []


def test_done_graph_starts_no_worker(store: Store, tmp_path: Path) -> None:
    attempts = tmp_path / "attempts"
    whole = graph(stage("only", attempts))
    run_graph(whole, store, SETTINGS, Recorder())
    run_graph(whole, store, SETTINGS, Recorder())
    assert lines(attempts) == ["only"]


@pytest.mark.parametrize(
    ("do", "reason", "code"),
    [
        ("fail", "it was told to", 1),
        ("defect", "ValueError: a defect", 1),
        ("mend", "the user can mend it", 2),
        ("die", "killed; most often memory", 1),
        ("diverge", r"step 7 \(learning rate 0.001; last good checkpoint: step 5\)", 1),
    ],
)
def test_failed_stage_takes_its_dependents_only(
    store: Store, tmp_path: Path, do: str, reason: str, code: int
) -> None:
    attempts = tmp_path / "attempts"
    bad = stage("bad", attempts, do=do)
    after = stage("after", attempts, needs=(bad,))
    last = stage("last", attempts, needs=(after,))
    good = stage("good", attempts, seconds=0.5)
    done = run_graph(graph(bad, after, last, good), store, SETTINGS, Recorder())
    failures = done.failures
    assert done.finished == 1
    assert store.is_done(good.key) and not store.is_done(bad.key)
    assert failures.keys() == {bad.fingerprint, after.fingerprint, last.fingerprint}
    found = failures[bad.fingerprint]
    assert not found.missing and found.exit_code == code
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(found.reason)
    assert failures[last.fingerprint].missing
    assert failures[last.fingerprint].reason.startswith("because bad failed: ")
    written = store.failure(bad.key)
    assert written is not None and written["reason"] == found.reason
    if do == "diverge":
        assert (written["step"], written["lr"], written["last_checkpoint"]) == (7, 0.001, 5)


def test_a_new_run_retries_what_failed(store: Store, tmp_path: Path) -> None:
    attempts = tmp_path / "attempts"
    bad = stage("bad", attempts, do="fail")
    run_graph(graph(bad), store, SETTINGS, Recorder())
    run_graph(graph(bad), store, SETTINGS, Recorder())
    assert lines(attempts) == ["bad", "bad"]


def test_waits_for_a_stage_that_another_holds(store: Store, tmp_path: Path) -> None:
    attempts = tmp_path / "attempts"
    held, free = stage("held", attempts), stage("free", attempts)
    lease = acquire(store, held.key)
    assert lease is not None
    recorder = Recorder()

    def finish() -> None:
        wait_for(lambda: store.is_done(free.key))
        store.open_work(held.key)
        store.publish(held.key)
        lease.release()

    thread = threading.Thread(target=finish)
    thread.start()
    assert run_graph(graph(held, free), store, SETTINGS, recorder) == GraphRun(1, {})
    thread.join()
    assert lines(attempts) == ["free"]
    assert any(state == "elsewhere" for _, state, _ in recorder.states)


PROGRAM = f"""
import signal
import sys
from pathlib import Path
# Where the tests run in the background of a shell, Ctrl-C arrives ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {str(HERE)!r})
from fakes import SETTINGS, Recorder, graph, stage
from bam_lab.record.store import Store
from bam_lab.run.scheduler import run_graph
attempts = Path(sys.argv[2])
first = stage("first", attempts)
middle = [stage(f"middle{{i}}", attempts, needs=(first,)) for i in range(6)]
slow = stage("slow", attempts, needs=(first,), do=sys.argv[3], seconds=0.3)
last = stage("last", attempts, needs=(*middle, slow))
store = Store(Path(sys.argv[1]))
done = run_graph(graph(first, *middle, slow, last), store, SETTINGS, Recorder())
sys.exit(1 if done.failures else 0)
"""


def program(store: Store, attempts: Path, do: str = "sleep") -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(store.root), str(attempts), do])


def test_two_programs_share_the_work_and_do_nothing_twice(store: Store, tmp_path: Path) -> None:
    attempts = tmp_path / "attempts"
    programs = [program(store, attempts) for _ in range(2)]
    assert [p.wait(60) for p in programs] == [0, 0]
    done = lines(attempts)
    assert len(done) == len(set(done)) == 9
    workers = {line.split(" ")[1] for line in attempts.read_text().splitlines()}
    assert len(workers) >= 2


def test_two_programs_agree_on_a_failed_stage(store: Store, tmp_path: Path) -> None:
    attempts = tmp_path / "attempts"
    programs = [program(store, attempts, "fail") for _ in range(2)]
    assert [p.wait(60) for p in programs] == [1, 1]
    assert "last" not in lines(attempts)


def children(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def test_killed_program_leaves_no_orphan_and_its_stage_can_be_taken(
    store: Store, tmp_path: Path
) -> None:
    attempts = tmp_path / "attempts"
    running = program(store, attempts, "until_stopped")
    wait_for(lambda: attempts.exists() and "slow" in lines(attempts))
    workers = children(running.pid)
    assert workers
    running.kill()
    running.wait()
    wait_for(lambda: not any(w.is_running() and w.status() != "zombie" for w in workers))
    key = next(p.stem for p in (store.root / "leases").glob("*.json"))
    assert acquire(store, key) is not None


def test_ctrl_c_lets_stages_keep_their_checkpoint(store: Store, tmp_path: Path) -> None:
    attempts = tmp_path / "attempts"
    running = program(store, attempts, "until_stopped")
    wait_for(lambda: attempts.exists() and "slow" in lines(attempts))
    workers = children(running.pid)
    os.kill(running.pid, signal.SIGINT)
    assert running.wait(30) != 0
    assert any(store.root.glob("work/*/checkpoint"))
    assert list((store.root / "leases").glob("*.json")) == []
    wait_for(lambda: not any(w.is_running() and w.status() != "zombie" for w in workers))


def test_worker_ends_when_its_stdin_closes(tmp_path: Path) -> None:
    worker = subprocess.Popen(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "BAM_LAB_PARENT": str(os.getpid())},
    )
    assert worker.stdin is not None and worker.stdout is not None
    assert json.loads(worker.stdout.readline()) == {"event": "ready"}
    worker.stdin.close()
    assert worker.wait(10) == 0
    worker.stdout.close()


def test_wide_stage_runs_alone(store: Store, tmp_path: Path) -> None:
    attempts = tmp_path / "attempts"
    wide = stage("wide", attempts, threads=10_000)
    both = graph(wide, stage("thin", attempts))
    assert run_graph(both, store, SETTINGS, Recorder()) == GraphRun(2, {})
