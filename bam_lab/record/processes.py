"""Tell whether a process is still the one once seen, and end one with its parent."""

import ctypes
import functools
import os
import signal
import socket
import sys
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1


@functools.cache
def host() -> str:
    """Return what makes a process id mean one thing: machine, boot and process namespace.

    Two containers may share a host name, and a machine keeps its name over a reboot.
    """
    parts = [socket.gethostname()]
    boot = Path("/proc/sys/kernel/random/boot_id")
    if boot.is_file():
        parts.append(boot.read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return "/".join(parts)


def started(pid: int) -> float | None:
    """Return when the process started (process ids are used again), or None when it is gone."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return float(process.create_time())
    except psutil.NoSuchProcess:
        return None


def is_alive(pid: int, since: float) -> bool:
    """Say whether the process `pid` that started at `since` still runs on this host."""
    now = started(pid)
    return now is not None and abs(now - since) < 0.5


def end_with_parent(parent: int) -> None:
    """On Linux, have the kernel kill this process when `parent`, which started it, ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # It ended before the line above.
        os._exit(1)
