"""Work on all cores: results, errors, and no orphans."""

import operator
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bam_lab.data import pool


@pytest.mark.parametrize("workers", [1, 2, None])
def test_every_task_once(workers):
    tasks = [(2, 3), (4, 5), (6, 7)]
    assert dict(pool.each(operator.mul, tasks, workers)) == {(2, 3): 6, (4, 5): 20, (6, 7): 42}


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_come_through(workers):
    with pytest.raises(ZeroDivisionError):
        list(pool.each(operator.truediv, [(1, 1), (1, 0)], workers))


SLEEPERS = """
import sys
from bam_lab.data import pool
sys.path.insert(0, sys.argv[1])
import sleeper
if __name__ == "__main__":
    list(pool.each(sleeper.sleep, [(sys.argv[1], 1), (sys.argv[1], 2)], 2))
"""
SLEEP = """
import os, time
from pathlib import Path
def sleep(folder, number):
    (Path(folder) / f"{number}.pid").write_text(str(os.getpid()))
    time.sleep(60)
"""


def test_a_killed_parent_leaves_no_orphans(tmp_path):
    (tmp_path / "sleeper.py").write_text(SLEEP)
    (tmp_path / "main.py").write_text(SLEEPERS)
    environment = {**os.environ, "PYTHONPATH": str(Path(pool.__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "main.py"), str(tmp_path)], env=environment
    ) as parent:
        wait_until(lambda: len([p for p in tmp_path.glob("*.pid") if p.read_text()]) == 2)
        children = [int(path.read_text()) for path in tmp_path.glob("*.pid")]
        assert all(alive(child) for child in children)
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(alive(child) for child in children))


def wait_until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def alive(pid):
    """Say whether a process runs; a zombie that nobody reaps does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
