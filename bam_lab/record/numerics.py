"""Settle precision and device once per store: numbers made otherwise are never compared.

The CPU's flags and the torch build are read without importing torch.
"""

import importlib.util
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bam_lab.errors import InputError
from bam_lab.record.files import intact, read_json, write_json
from bam_lab.record.store import Store

Precision = Literal["bf16-mixed", "float32"]
Device = Literal["cpu", "cuda"]

NAME = "numerics.json"

_BF16_FLAGS = {"avx512_bf16", "amx_bf16"}  # arm64 lists "bf16" (and "svebf16").
_BF16_FLAGS_ARM = {"bf16"}


@dataclass(frozen=True)
class Numerics:
    """Hold what changes the bits of every stage (threads stand in the scale)."""

    precision: Precision
    device: Device


def cpu_flags() -> set[str]:
    """Return the CPU's feature flags; empty where the system does not list them."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    return set(found.group(1).split()) if found else set()


def cpu_has_bf16() -> bool:
    """Say whether bf16 matrix products run in hardware; emulated ones are slower than float32."""
    wanted = _BF16_FLAGS_ARM if platform.machine() in ("aarch64", "arm64") else _BF16_FLAGS
    return bool(cpu_flags() & wanted)


def cuda_build() -> str | None:
    """Return the CUDA version that the installed torch was built for, or None."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    version = Path(spec.origin).parent / "version.py"
    found = re.search(r"^cuda\b.*=\s*'([^']+)'", version.read_text(), re.MULTILINE)
    return found.group(1) if found else None


def has_gpu() -> bool:
    """Say whether an NVIDIA device and a torch that can use it are here."""
    return Path("/dev/nvidia0").exists() and cuda_build() is not None


def detect() -> Numerics:
    """Return what `auto` means on this machine."""
    if has_gpu():
        return Numerics("bf16-mixed", "cuda")
    return Numerics("bf16-mixed" if cpu_has_bf16() else "float32", "cpu")


def stored(store: Store) -> Numerics | None:
    """Return what the store was settled to, or None when nothing ran in it yet."""
    path = store.root / NAME
    try:
        with intact(path):
            return Numerics(**read_json(path))
    except FileNotFoundError:
        return None


def of(told: dict[str, Any] | None) -> Numerics | None:
    """Return numerics as an exported file says them; None where it says none."""
    return Numerics(**told) if told else None


def settle(
    store: Store,
    precision: Precision | Literal["auto"] = "auto",
    device: Device | Literal["auto"] = "auto",
) -> Numerics:
    """Return the store's numerics, settling them on the first call.

    Raises:
        InputError: what is asked for, or what this machine has, is not what the store holds.
    """
    found = stored(store)
    here = detect()
    asked = Numerics(
        precision=(found or here).precision if precision == "auto" else precision,
        device=(found or here).device if device == "auto" else device,
    )
    if found is None:
        require_device(store, asked)
        write_json(store.root / NAME, asdict(asked))
        found = asked
    if asked != found:
        raise InputError(
            f"{store.root} must keep its numerics ({found.precision} on {found.device}), got "
            f"{asked.precision} on {asked.device}: results made otherwise are not compared. "
            "Choose another store with --store."
        )
    return found


def require_device(store: Store, settled: Numerics) -> None:
    """See that this machine has the device of the store's numerics; reading needs none.

    Raises:
        InputError: it has none.
    """
    if settled.device == "cuda" and not has_gpu():
        raise InputError(
            f"{store.root} must be used where a GPU is (its numerics say cuda), got a machine "
            "without one, or a CPU build of torch. Choose another store with --store."
        )
