"""Killed and resumed, the road ends in the same bits; a lost loss stops only its own arm."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bam_lab.record import metrics
from bam_lab.record.store import Store
from bam_lab.run.reproduce import RunOptions, RunOutcome
from bam_lab.run.stage import Stage

Run = Callable[[Store, RunOptions], RunOutcome]


KILL = {"seed_model": 13, "mixture soft r0": 8, "evaluate seed_model": 3}


def store_with(source: Store, root: Path, stages: list[Stage]) -> Store:
    """Return a new store that holds these stages already."""
    store = Store(root)
    store.prepare()
    shutil.copy(source.root / "numerics.json", root)
    for stage in stages:
        shutil.copytree(source.stage(stage.key), store.stage(stage.key))
    return store


def rows(folder: Path) -> list[dict[str, Any]]:
    """Return what was logged, without what depends on the clock."""
    return [
        {k: v for k, v in row.items() if k != "tokens_per_s"}
        for row in metrics.read(folder / metrics.NAME)
    ]


def same_results(one: Store, two: Store) -> None:
    assert one.done_keys() == two.done_keys()
    for key in one.done_keys():
        for name in ("checkpoint/model.safetensors", "scores.csv", "documents.parquet", "receipt.json"):
            first, second = (store.stage(key) / name for store in (one, two))
            assert first.exists() == second.exists(), f"{key}/{name}"
            if first.exists():
                assert first.read_bytes() == second.read_bytes(), f"{key}/{name}"
        assert rows(one.stage(key)) == rows(two.stage(key)), key


def test_killed_stages_resume_to_the_same_bits(
    run_fixture: Run,
    whole: RunOutcome,
    whole_store: Store,
    hurt_options: RunOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = [s for s in whole.graph.stages.values() if s.name in ("corpus", "tokenizer")]
    store = store_with(whole_store, tmp_path, kept)
    monkeypatch.setenv("KILL", ";".join(f"{label}:{step}" for label, step in KILL.items()))
    killed: list[str] = []
    while (outcome := run_fixture(store, hurt_options)).exit_code:
        assert all("killed" in reason for reason in outcome.failures.values())
        killed += outcome.failures
    assert sorted(killed) == sorted(KILL)
    for stage in outcome.graph.stages.values():
        if stage.label in KILL and stage.name != "evaluate":
            manifest = json.loads((store.stage(stage.key) / "manifest.json").read_text())
            assert manifest["facts"]["resumed_from"] == KILL[stage.label] // 5 * 5
        assert not (store.stage(stage.key) / "resume.pt").exists()
    same_results(whole_store, store)


def test_lost_loss_stops_its_arm_and_no_other(
    run_fixture: Run,
    whole: RunOutcome,
    whole_store: Store,
    hurt_options: RunOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = [s for s in whole.graph.stages.values() if "mixture" not in s.label]
    store = store_with(whole_store, tmp_path, kept)
    monkeypatch.setenv("POISON", "mixture soft r0")
    outcome = run_fixture(store, hurt_options)
    assert outcome.exit_code == 1
    assert outcome.failures.keys() == {"mixture soft r0"}
    assert outcome.missing.keys() == {"evaluate mixture soft r0"}
    told = outcome.failures["mixture soft r0"]
    assert "at step 1 (learning rate 0.0015; last good checkpoint: none yet)" in told
    failed = outcome.graph.arm("soft", 0)
    failure = store.failure(failed.key)
    assert failure is not None
    assert (failure["step"], failure["lr"], failure["last_checkpoint"]) == (1, 0.0015, None)
    assert store.is_done(outcome.graph.arm("btx", 0).key)
