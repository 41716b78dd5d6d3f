"""How a stage was made: versions, commit, hardware, numerics. Shown, not hashed."""

import hashlib
import importlib.metadata
import os
import platform
import re
import subprocess
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from bam_lab.record.numerics import Numerics

PACKAGES = (
    "bam-lab",
    "torch",
    "lightning",
    "numpy",
    "safetensors",
    "tokenizers",
    "reasoning-gym",
    "pydantic",
)


def package_versions() -> dict[str, str]:
    """Return the versions of the installed packages that can change a number."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def git_state() -> dict[str, str]:
    """Return the checkout's commit, and the digest of what is not committed; empty in a wheel."""
    folder = Path(__file__).resolve().parents[2]
    commit = _git(folder, "rev-parse", "HEAD") if (folder / ".git").exists() else None
    if commit is None:
        return {}
    difference = _git(folder, "diff", "HEAD", "--", "bam_lab", "configs", "ablations") or ""
    state = {"commit": commit.strip()}
    if difference:
        state["dirty"] = hashlib.sha256(difference.encode()).hexdigest()[:16]
    return state


def cores() -> int:
    """Return how many cores this process may use (affinity and container quota)."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = Path("/sys/fs/cgroup/cpu.max")
    if quota.is_file():
        limit, period = quota.read_text().split()
        if limit != "max":
            return max(1, min(available or 1, int(limit) // int(period)))
    return available or 1


def cpu_name() -> str:
    """Return the processor's name."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.machine()


def hardware() -> dict[str, Any]:
    """Describe the machine (no host name: reports go to anonymous review)."""
    return {
        "cpu": cpu_name(),
        "cores": cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.machine()}",
    }


def manifest(
    *, numerics: Numerics, threads: int, started: float, facts: dict[str, Any]
) -> dict[str, Any]:
    """Return a stage's manifest; `started` is a Unix time, `facts` what the stage adds."""
    finished = time.time()
    return {
        "numerics": {**asdict(numerics), "threads": threads},
        "packages": package_versions(),
        "git": git_state(),
        "hardware": hardware(),
        "started": started,
        "finished": finished,
        "wall_s": finished - started,
        "facts": facts,
    }
