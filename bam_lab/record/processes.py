"""Tell whether a process that was once seen is still the same one."""

import functools
import os
import socket
from pathlib import Path

import psutil


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
