"""Numerics are settled once per store."""

from pathlib import Path

import pytest

from bam_lab.errors import InputError
from bam_lab.record import numerics
from bam_lab.record.numerics import Numerics
from bam_lab.record.store import Store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(numerics, "has_gpu", lambda: False)
    store = Store(tmp_path)
    store.prepare()
    return store


def test_settled_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerics, "cpu_has_bf16", lambda: True)
    assert numerics.stored(store) is None
    assert numerics.settle(store) == Numerics("bf16-mixed", "cpu")
    # The store keeps it on a machine where auto would mean something else.
    monkeypatch.setattr(numerics, "cpu_has_bf16", lambda: False)
    assert numerics.settle(store) == Numerics("bf16-mixed", "cpu")
    with pytest.raises(
        InputError, match=r"must keep its numerics \(bf16-mixed on cpu\), got float"
    ):
        numerics.settle(store, "float32")


def test_auto_is_float32_without_hardware_bf16(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numerics, "cpu_has_bf16", lambda: False)
    assert numerics.settle(store) == Numerics("float32", "cpu")


def test_cuda_store_needs_a_gpu(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerics, "has_gpu", lambda: False)
    with pytest.raises(InputError, match="must be used where a GPU is"):
        numerics.settle(store, "bf16-mixed", "cuda")
    assert numerics.stored(store) is None  # what cannot run settles nothing


def test_reading_a_cuda_store_needs_no_gpu(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerics, "has_gpu", lambda: True)
    settled = numerics.settle(store)
    monkeypatch.setattr(numerics, "has_gpu", lambda: False)
    assert numerics.settle(store) == settled == Numerics("bf16-mixed", "cuda")
    with pytest.raises(InputError, match="must be used where a GPU is"):
        numerics.require_device(store, settled)


@pytest.mark.parametrize(
    ("machine", "flags", "expected"),
    [
        ("x86_64", {"avx2", "avx512f"}, False),
        ("x86_64", {"avx512_bf16"}, True),
        ("x86_64", {"amx_bf16"}, True),
        ("aarch64", {"bf16"}, True),
        ("x86_64", {"bf16"}, False),
    ],
)
def test_flags(
    monkeypatch: pytest.MonkeyPatch, machine: str, flags: set[str], expected: bool
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(numerics, "cpu_flags", lambda: flags)
    assert numerics.cpu_has_bf16() is expected
