"""Processes: told apart when their number is used again, ended with their parent."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bam_lab.record.processes import host, is_alive, started

REPO = Path(__file__).parents[2]
POOL = """
import os, sys, time
from bam_lab.data.pool import each
def slow(seconds):
    time.sleep(seconds)
if __name__ == "__main__":
    for _ in each(slow, [(60,), (60,)], 2):
        pass
"""


def test_a_process_is_known_by_number_and_start() -> None:
    mine = started(os.getpid())
    assert mine is not None and is_alive(os.getpid(), mine)
    assert not is_alive(os.getpid(), mine - 100)
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    assert started(gone.pid) is None
    assert host() == host()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does it on Linux only")
def test_pool_ends_with_a_killed_caller(tmp_path: Path) -> None:
    script = tmp_path / "pool_script.py"
    script.write_text(POOL)
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    caller = subprocess.Popen([sys.executable, str(script)], env=environment)
    workers: list[psutil.Process] = []
    until = time.monotonic() + 20
    while len(workers) < 2:
        assert time.monotonic() < until
        time.sleep(0.1)
        found = psutil.Process(caller.pid).children()
        workers = [p for p in found if "spawn_main" in " ".join(p.cmdline())]
    time.sleep(1.0)  # until they have begun their task
    caller.kill()
    caller.wait()
    _, alive = psutil.wait_procs(workers, timeout=10)
    for left in alive:
        left.kill()
    assert alive == []
