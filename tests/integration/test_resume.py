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

Run = Callable[[Store, RunOptions], RunOutcome]


def store_with(source: Store, root: Path, *names: str) -> Store:
    """Return a new store that holds the stages of these names already."""
    store = Store(root)
    store.prepare()
    shutil.copy(source.root / "numerics.json", root)
    for key in source.done_keys():
        if key.rpartition("-")[0] in names:
            shutil.copytree(source.stage(key), store.stage(key))
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
        for name in ("checkpoint/model.safetensors", "scores.csv", "documents.csv", "receipt.json"):
            first, second = (store.stage(key) / name for store in (one, two))
            assert first.exists() == second.exists(), f"{key}/{name}"
            if first.exists():
                assert first.read_bytes() == second.read_bytes(), f"{key}/{name}"
        assert rows(one.stage(key)) == rows(two.stage(key)), key


@pytest.mark.parametrize(
    ("label", "kept", "kill"),
    [
        ("seed_model", ("corpus", "tokenizer"), 13),
        ("mixture soft r0", ("corpus", "tokenizer", "seed_model", "expert", "upcycle"), 8),
        ("evaluate seed_model", ("corpus", "tokenizer", "seed_model", "expert", "upcycle"), 3),
    ],
)
def test_killed_stage_resumes_to_the_same_bits(
    run_fixture: Run,
    whole_store: Store,
    hurt_options: RunOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    label: str,
    kept: tuple[str, ...],
    kill: int,
) -> None:
    store = store_with(whole_store, tmp_path, *kept)
    monkeypatch.setenv("KILL", f"{label}:{kill}")
    killed = run_fixture(store, hurt_options)
    assert killed.exit_code == 1 and "killed" in killed.failures[label]
    resumed = run_fixture(store, hurt_options)
    assert resumed.exit_code == 0, resumed.failures
    if not label.startswith("evaluate"):
        stage = next(s for s in resumed.graph.stages.values() if s.label == label)
        manifest = json.loads((store.stage(stage.key) / "manifest.json").read_text())
        assert manifest["facts"]["resumed_from"] == kill // 5 * 5
        assert not (store.stage(stage.key) / "resume.pt").exists()
    same_results(whole_store, store)


def test_lost_loss_stops_its_arm_and_no_other(
    run_fixture: Run,
    whole_store: Store,
    hurt_options: RunOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = ("corpus", "tokenizer", "seed_model", "expert", "upcycle")
    store = store_with(whole_store, tmp_path, *kept)
    monkeypatch.setenv("POISON", "mixture soft r0")
    outcome = run_fixture(store, hurt_options)
    assert outcome.exit_code == 1
    assert outcome.failures.keys() == {"mixture soft r0"}
    assert outcome.missing.keys() == {"evaluate mixture soft r0"}
    told = outcome.failures["mixture soft r0"]
    assert "step 1 (learning rate 0.0015; last good checkpoint: none yet)" in told
    failed = outcome.graph.arm("soft", 0)
    failure = store.failure(failed.key)
    assert failure is not None
    assert (failure["step"], failure["lr"], failure["last_checkpoint"]) == (1, 0.0015, None)
    assert store.is_done(outcome.graph.arm("btx", 0).key)
