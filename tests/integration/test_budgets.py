"""Budgets end to end: one stable run, cut where the budgets decay, is the run that is never cut."""

import csv
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from bam_lab.record import ledger
from bam_lab.record.store import Store
from bam_lab.report.collect import collect
from bam_lab.report.render import render
from bam_lab.run.reproduce import RunOptions, RunOutcome, run_ablation
from bam_lab.run.stage import Stage
from bam_lab.spec.load import load_ablation
from tests.integration.conftest import FIXTURE

WEIGHTS = "checkpoint/model.safetensors"
BUDGETS = "budgets=[1, 2, 3]"


def run(store: Store, *overrides: str) -> RunOutcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(FIXTURE.parents[2]))
        resolved = load_ablation(str(FIXTURE), overrides=overrides)
        return run_ablation(resolved, store, 1, RunOptions(workers=1), Console(quiet=True))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    outcome = run(Store(tmp_path_factory.mktemp("budgets")), BUDGETS)
    assert outcome.exit_code == 0, outcome.failures
    return outcome


@pytest.fixture
def store(trained: RunOutcome, tmp_path: Path) -> Store:
    assert trained.index is not None
    shutil.copytree(trained.index.parents[2], tmp_path, dirs_exist_ok=True)
    return Store(tmp_path)


def test_budgets_share_a_stable_run_and_spend_what_they_say(
    trained: RunOutcome, store: Store
) -> None:
    graph = trained.graph
    pieces = [s for s in graph.stages.values() if s.role.startswith("stable run")]
    assert len(pieces) == 2 * 3
    for stage in graph.stages.values():
        assert (store.stage(stage.key) / "resume.pt").exists() == (stage in pieces)
    index = next(store.root.glob("ablations/*/index.json"))
    evidence = collect(store.root, index)
    for arm in evidence.arms:  # what was spent is the budget, counted over all pieces
        own = [s.ledger for s in evidence.stages if s.name == "mixture" and s.arm == arm.name]
        assert sum(spent["tokens"] for spent in own) == arm.budget["tokens"]
        assert sum(spent["training_flops"] for spent in own) == arm.budget["training_flops"]
        starts = [c.first_step for c in evidence.curves if c.arm == arm.name]
        assert starts == sorted(starts) and starts[0] == 0
    told = render(store.root, index)
    rows = list(csv.DictReader(told.paths["table.csv"].read_text().splitlines()))
    assert any(row["table"] == "budgets" and row["row"] == "soft, average" for row in rows)
    assert "against btx" in told.paths["report.html"].read_text()
    matched = [row for row in rows if row["table"] == "match" and row["column"] == "spent"]
    assert all(float(row["value"]) == pytest.approx(1, abs=0.06) for row in matched)


def test_a_run_that_is_cut_is_the_run_that_is_not(trained: RunOutcome, store: Store) -> None:
    """The longest budget is cut twice on its way."""
    phase = "scale.phases.mixture"
    alone = run(store, f"{phase}.tokens=7680", f"{phase}.schedule=stable_then_decay")
    assert alone.exit_code == 0, alone.failures
    for arm in ("btx", "soft"):
        whole, cut = alone.graph.arm(arm, 0), trained.graph.arm(f"{arm}@3x", 0)
        assert whole.key != cut.key
        assert weights(store, whole) == weights(store, cut)
        reads = [ledger.read(store.stage(stage.key)).sources for stage in (whole, cut)]
        assert reads[0] == reads[1]


def weights(store: Store, stage: Stage) -> bytes:
    return (store.stage(stage.key) / WEIGHTS).read_bytes()


def test_another_budget_goes_on_from_the_store(trained: RunOutcome, store: Store) -> None:
    again = run(store, "budgets=[1, 2, 3, 4]")
    new = [s for s in again.graph.stages.values() if s.fingerprint not in trained.graph.stages]
    # A piece, a decay and an evaluation an arm; nothing of what was there.
    assert sorted({stage.name for stage in new}) == ["evaluate", "mixture"]
    assert again.exit_code == 0 and again.ran == len(new) == 2 * 3


def test_a_stable_run_without_its_end_is_told(trained: RunOutcome, store: Store) -> None:
    decay = trained.graph.arm("btx@2x", 0)
    before = trained.graph.stages[decay.inputs["before"]]
    (store.stage(before.key) / "resume.pt").unlink()
    shutil.rmtree(store.stage(decay.key))
    told = run(store, BUDGETS)
    assert told.exit_code == 2
    (reason,) = told.failures.values()
    assert f"{before.key} must hold resume.pt" in reason and "Delete the folder" in reason
