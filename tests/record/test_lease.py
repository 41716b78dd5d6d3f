"""Leases: one owner at a time, whoever dies, however many want it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bam_lab.record import lease as leases
from bam_lab.record.lease import acquire, holder
from bam_lab.record.store import Store

KEY = "mixture-0123456789abcdef"
REPO = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    store.prepare()
    return store


def python(code: str, *arguments: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


HOLD = """
import sys
from pathlib import Path
from bam_lab.record.lease import acquire
from bam_lab.record.store import Store
print(acquire(Store(Path(sys.argv[1])), sys.argv[2]) is not None, flush=True)
sys.stdin.read()
"""


def test_one_owner_until_released(store: Store) -> None:
    mine = acquire(store, KEY)
    assert mine is not None and mine.is_mine()
    assert acquire(store, KEY) is None
    assert holder(store, KEY) == f"process {os.getpid()} on {leases.host().split('/')[0]}"
    mine.release()
    assert holder(store, KEY) is None
    assert acquire(store, KEY) is not None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff\x00", b"null"])
def test_a_damaged_lease_is_free(store: Store, content: bytes) -> None:
    (store.root / "leases" / f"{KEY}.json").write_bytes(content)
    assert holder(store, KEY) is None
    mine = acquire(store, KEY)
    assert mine is not None and mine.is_mine()


def test_killed_owner_is_stolen_from_at_once(store: Store) -> None:
    with python(HOLD, str(store.root), KEY) as other:
        assert other.stdout is not None and other.stdout.readline() == "True\n"
        assert acquire(store, KEY) is None
        other.kill()
    assert acquire(store, KEY) is not None


def test_lease_lives_while_the_worker_that_writes_for_it_does(store: Store) -> None:
    code = HOLD.replace(
        "sys.stdin.read()",
        "",
    ).replace(
        "print(acquire(Store(Path(sys.argv[1])), sys.argv[2]) is not None, flush=True)",
        "acquire(Store(Path(sys.argv[1])), sys.argv[2]).add_process(int(sys.argv[3]))",
    )
    with python("import sys; sys.stdin.read()") as worker:
        with python(code, str(store.root), KEY, str(worker.pid)) as owner:
            owner.wait()
        assert acquire(store, KEY) is None
        worker.kill()
    assert acquire(store, KEY) is not None


def test_process_id_used_again_is_not_the_owner(store: Store) -> None:
    mine = acquire(store, KEY)
    assert mine is not None
    owner = json.loads(mine.path.read_text())
    owner["processes"][0]["started"] -= 1000  # this process id, at another time
    mine.path.write_text(json.dumps(owner))
    assert acquire(store, KEY) is not None
    assert not mine.is_mine()


def test_other_host_is_judged_by_its_heartbeat(store: Store) -> None:
    mine = acquire(store, KEY)
    assert mine is not None
    owner = json.loads(mine.path.read_text())
    owner["host"] = "elsewhere"
    mine.path.write_text(json.dumps(owner))
    old = time.time() - leases.STALE_SECONDS + 30
    os.utime(mine.path, (old, old))
    assert acquire(store, KEY) is None
    mine.beat()
    assert mine.path.stat().st_mtime > old + 60
    old = time.time() - leases.STALE_SECONDS - 30
    os.utime(mine.path, (old, old))
    assert acquire(store, KEY) is not None


def test_old_heartbeat_on_this_host_means_nothing(store: Store) -> None:
    mine = acquire(store, KEY)
    assert mine is not None
    os.utime(mine.path, (0, 0))
    assert acquire(store, KEY) is None


def test_torn_lease_is_stale(store: Store) -> None:
    mine = acquire(store, KEY)
    assert mine is not None
    mine.path.write_text('{"host": "x", "pro')
    assert acquire(store, KEY) is not None
    assert not mine.is_mine()
    mine.release()  # releases nothing that is not its own
    assert holder(store, KEY) is not None


RACE = """
import json, sys
from pathlib import Path
from bam_lab.record.lease import acquire
from bam_lab.record.store import Store
store = Store(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
won = []
for i in range(60):
    if acquire(store, f"mixture-{i}") is not None:
        won.append(i)
print(json.dumps(won), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("stale", [False, True])
def test_racing_processes_never_both_win(store: Store, stale: bool) -> None:
    if stale:
        with python("pass") as gone:
            gone.wait()
        for i in range(60):
            dead = acquire(store, f"mixture-{i}")
            assert dead is not None
            owner = json.loads(dead.path.read_text())
            owner["processes"] = [{"pid": gone.pid, "started": 1.0}]
            dead.path.write_text(json.dumps(owner))
    racers = [python(RACE, str(store.root)) for _ in range(4)]
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = []
    for racer in racers:
        assert racer.stdout is not None
        won += json.loads(racer.stdout.readline())
    for racer in racers:
        racer.communicate()
    assert sorted(won) == list(range(60))
