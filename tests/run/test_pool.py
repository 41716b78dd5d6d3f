"""A worker's environment."""

import pytest

from bam_lab.run.pool import environment


def test_threads_are_settled_before_any_library_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    found = environment(2)
    assert found["OMP_NUM_THREADS"] == found["MKL_NUM_THREADS"] == "2"
    assert found["OMP_WAIT_POLICY"] == "PASSIVE"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")  # how to wait is the user's
    assert environment(2)["OMP_WAIT_POLICY"] == "ACTIVE"
