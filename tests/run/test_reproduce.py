"""From a spec to an index, over fake stages."""

import importlib.util
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes import COMMAND
from rich.console import Console

from bam_lab.errors import InputError
from bam_lab.record.store import Store
from bam_lab.run.reproduce import RunOptions, RunOutcome, current_graph, require, run_ablation
from bam_lab.spec.load import load_ablation
from bam_lab.spec.resolved import ResolvedAblation

BROKEN = (sys.executable, "-c", "raise SystemExit(3)")


@pytest.fixture
def resolved(fixture_ablation: Path) -> ResolvedAblation:
    return load_ablation(str(fixture_ablation))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("ATTEMPTS", str(tmp_path / "attempts"))
    return Store(tmp_path / "store")


def run(
    resolved: ResolvedAblation, store: Store, command: tuple[str, ...] = COMMAND
) -> tuple[RunOutcome, str]:
    text = io.StringIO()
    options = RunOptions(precision="float32", command=command)
    outcome = run_ablation(resolved, store, 1, options, Console(file=text, width=100))
    return outcome, text.getvalue()


def test_runs_everything_once_and_leaves_an_index(resolved: ResolvedAblation, store: Store) -> None:
    assert not current_graph(resolved, store, 1).known
    outcome, text = run(resolved, store)
    assert outcome.exit_code == 0 and outcome.failures == {} == outcome.missing
    assert outcome.ran == len(outcome.graph.stages) == len(store.done_keys())
    assert "done     mixture soft r0 in 0:00" in text
    assert outcome.index is not None
    assert outcome.index.relative_to(store.root) == Path("ablations/ablation-scale/index.json")
    index = json.loads(outcome.index.read_text())
    assert (
        index["ablation"]["id"] == "ablation"
        and index["replicates"] == 1
        and index["overrides"] == []
    )
    assert index["arms"].keys() == {"btx", "soft"}
    assert index["arms"]["soft"]["budget"]["matched"] is True
    assert index["arms"]["soft"]["method"]["z_loss"] == 0.001  # defaults are shown
    assert index["domains"][0] == index["general"]
    assert index["scale_name"] == "scale" and index["scale"].keys() >= {"phases", "optimizer"}
    assert {row["key"] for row in index["stages"]} == set(store.done_keys())
    again, text = run(resolved, store, BROKEN)
    assert again.exit_code == 0 and again.ran == 0 and text == ""


def test_overridden_run_stands_apart(fixture_ablation: Path, store: Store) -> None:
    resolved = load_ablation(str(fixture_ablation), overrides=["arms.soft.kv=per_expert"])
    outcome, _ = run(resolved, store)
    assert outcome.index is not None
    assert outcome.index.parent.name == "ablation-scale-overridden"


def test_failed_corpus_stops_before_the_rest(
    resolved: ResolvedAblation, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DO_corpus", "mend")
    outcome, text = run(resolved, store)
    assert outcome.exit_code == 2 and outcome.ran == 0 and outcome.index is None
    assert outcome.failures == {"corpus": "the user can mend it"}
    assert "failed   corpus: the user can mend it" in text


def test_failed_arms_leave_the_rest_and_are_retried(
    resolved: ResolvedAblation, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DO_mixture", "diverge")
    outcome, _ = run(resolved, store)
    assert outcome.exit_code == 1
    assert outcome.failures.keys() == {"mixture btx r0", "mixture soft r0"}
    assert outcome.missing.keys() == {"evaluate mixture btx r0", "evaluate mixture soft r0"}
    assert outcome.index is not None and outcome.index.is_file()
    monkeypatch.delenv("DO_mixture")
    again, _ = run(resolved, store)
    assert again.exit_code == 0 and again.ran == 4


def test_other_numerics_are_refused_even_when_all_is_done(
    resolved: ResolvedAblation, store: Store
) -> None:
    run(resolved, store)
    with pytest.raises(InputError, match="must keep its numerics"):
        run_ablation(resolved, store, 1, RunOptions(precision="bf16-mixed"))


def test_missing_package_is_told_before_anything_starts(
    resolved: ResolvedAblation, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    told = r"tokenizers, rensa must be installed.*pip install 'bam-lab\[data\]'"
    with pytest.raises(InputError, match=told):
        run(resolved, store, BROKEN)


def test_tasks_need_lm_eval_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    own = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "lm_eval" else own(name)
    )
    require({"seed_model", "mixture", "evaluate"})
    told = r"^lm_eval must be installed for this. Run: pip install 'bam-lab\[eval\]'$"
    with pytest.raises(InputError, match=told):
        require({"seed_model", "mixture", "tasks"})


AGAIN = """
import sys
from pathlib import Path
from bam_lab.record.store import Store
from bam_lab.run.reproduce import run_ablation
from bam_lab.spec.load import load_ablation
outcome = run_ablation(load_ablation(sys.argv[1]), Store(Path(sys.argv[2])), 1)
heavy = {"torch", "lightning", "pandas", "tokenizers", "scipy"} & set(sys.modules)
sys.exit(f"{outcome.ran} ran, imported {heavy}" if outcome.ran or heavy else 0)
"""


def test_second_call_is_quick_and_imports_no_torch(
    resolved: ResolvedAblation, store: Store, fixture_ablation: Path
) -> None:
    run(resolved, store)
    began = time.monotonic()
    command = [sys.executable, "-c", AGAIN, str(fixture_ablation), str(store.root)]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 5
