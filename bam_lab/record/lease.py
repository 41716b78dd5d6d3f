"""Own a stage exclusively, across processes and hosts.

A lease is a file that names its owner. It is stale when its processes are gone (same host), or when
its heartbeat (the file's mtime, judged by the file system's own clock) is old (another host). On
one host the process table decides alone: a laptop that slept has old heartbeats and live owners.

Judging and replacing a lease happens under one `flock`, which the kernel drops when its holder
dies; so two stealers never both win.
"""

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bam_lab.record.files import explained
from bam_lab.record.processes import host, is_alive, started
from bam_lab.record.store import Store

BEAT_SECONDS = 15.0
STALE_SECONDS = 180.0


@dataclass(frozen=True)
class Lease:
    """Hold one stage; only the process that acquired it uses it."""

    path: Path
    token: str

    def beat(self) -> None:
        """Tell other hosts that the owner lives."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.path)

    def is_mine(self) -> bool:
        """Say whether nobody took the stage over meanwhile (after a long sleep, for example)."""
        owner = _read(self.path)
        return owner is not None and owner["token"] == self.token

    def add_process(self, pid: int) -> None:
        """Name a process that writes for the owner: the lease is not stale while it lives."""
        with _guard(self.path.parent):
            owner = _read(self.path)
            if owner is None or owner["token"] != self.token:
                return
            owner["processes"] = [_process(os.getpid()), _process(pid)]
            _write(self.path, owner)

    def release(self) -> None:
        """Give the stage back, unless somebody else has it by now."""
        with _guard(self.path.parent):
            if self.is_mine():
                self.path.unlink()


def acquire(store: Store, key: str) -> Lease | None:
    """Take the lease of a stage; None when another live process holds it."""
    path = store.inside("leases", f"{key}.json")
    with _guard(path.parent):
        if path.exists():
            if not _is_stale(path):
                return None
            path.unlink()
        token = secrets.token_hex(8)
        with explained(path):
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            os.close(descriptor)
            owner = {"host": host(), "processes": [_process(os.getpid())], "token": token}
            _write(path, owner)
        return Lease(path, token)


def holder(store: Store, key: str) -> str | None:
    """Return who holds the stage ("process 12 on name"), or None when it is free."""
    path = store.inside("leases", f"{key}.json")
    with _guard(path.parent):
        owner = _read(path)
        if owner is None or _is_stale(path):
            return None
    return f"process {owner['processes'][0]['pid']} on {owner['host'].split('/')[0]}"


@contextlib.contextmanager
def _guard(folder: Path) -> Iterator[None]:
    with explained(folder), (folder / ".guard").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _process(pid: int) -> dict[str, Any]:
    return {"pid": pid, "started": started(pid) or 0.0}


def _read(path: Path) -> dict[str, Any] | None:
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    whole = isinstance(owner, dict) and owner.keys() >= {"host", "processes", "token"}
    return owner if whole else None


def _write(path: Path, owner: dict[str, Any]) -> None:
    # Under the guard, so no reader sees it half-written; a crash leaves text that reads as stale.
    path.write_text(json.dumps(owner), encoding="utf-8")


def _is_stale(path: Path) -> bool:
    owner = _read(path)
    if owner is None:  # The guard is held, so nobody is writing it: its writer died.
        return True
    if owner["host"] == host():
        return not any(is_alive(p["pid"], p["started"]) for p in owner["processes"])
    return _now(path.parent) - path.stat().st_mtime > STALE_SECONDS


def _now(folder: Path) -> float:
    """Return the file system's time, which a network file system's server sets, not this host."""
    probe = folder / ".clock"
    probe.touch()
    return probe.stat().st_mtime
