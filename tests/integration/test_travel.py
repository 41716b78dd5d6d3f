"""Results travel: another store reports them byte for byte, and trains only what it must."""

import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from bam_lab.record.export import export
from bam_lab.record.imported import import_results
from bam_lab.record.store import Store
from bam_lab.report.render import NAMES, render
from bam_lab.run.reproduce import RunOptions, RunOutcome, run_ablation
from bam_lab.spec.load import load_ablation
from bam_lab.spec.resolved import ResolvedAblation
from tests.cli.command import bam_lab

FIXTURE = Path(__file__).parents[1] / "fixtures" / "ablation.yaml"
CHANGE = "arms.soft.kv=per_expert"


@pytest.fixture
def here(whole_store: Store, tmp_path: Path) -> Store:
    """Return a store that has what the uninterrupted run exported."""
    packed = export(whole_store, "ablation-scale", tmp_path / "small.zip")
    assert packed.missing == 0
    weights = sum(path.stat().st_size for path in whole_store.root.rglob("*.safetensors"))
    assert packed.bytes < weights / 4
    store = Store(tmp_path / "here")
    import_results(store, packed.path)
    return store


def run(resolved: ResolvedAblation, store: Store) -> RunOutcome:
    return run_ablation(resolved, store, 1, RunOptions(workers=1), Console(quiet=True))


def test_the_same_report_without_training(whole: RunOutcome, here: Store, tmp_path: Path) -> None:
    assert whole.index is not None
    theirs = render(whole.index.parents[2], whole.index, tmp_path / "theirs")
    index = here.root / "ablations" / "ablation-scale" / "index.json"
    ours = render(here.root, index, tmp_path / "ours")
    for name in NAMES:
        assert ours.paths[name].read_bytes() == theirs.paths[name].read_bytes(), name
    assert not list(here.root.rglob("*.safetensors"))
    again = run(load_ablation(str(FIXTURE)), here)
    assert again.exit_code == 0 and again.ran == 0


def test_a_changed_arm_is_trained_from_experts_made_again(
    here: Store, whole_store: Store, tmp_path: Path
) -> None:
    """Nothing that can be trusted runs again, and the numbers are those of the first machine."""
    there = Store(tmp_path / "there")  # where all weights are
    shutil.copytree(whole_store.root, there.root)
    changed = load_ablation(str(FIXTURE), overrides=[CHANGE])
    outcome = run(changed, here)
    assert outcome.exit_code == 0, outcome.failures
    first = run(changed, there)
    assert first.exit_code == 0 and first.ran == 4  # upcycle, mixture, and their evaluations
    labels = {stage.label for stage in outcome.graph.stages.values() if here.is_whole(stage.key)}
    assert {"seed_model", "expert code r0", "upcycle soft r0", "mixture soft r0"} <= labels
    kept = {s.label for s in outcome.graph.stages.values() if not here.is_whole(s.key)}
    assert kept == {"upcycle btx r0", "mixture btx r0"}
    for stage in outcome.graph.stages.values():
        if stage.name == "evaluate":
            ours, theirs = (s.stage(stage.key) / "scores.csv" for s in (here, there))
            assert ours.read_bytes() == theirs.read_bytes(), stage.label


def test_the_commands_say_what_they_did_and_what_comes_next(
    whole_store: Store, tmp_path: Path
) -> None:
    there, here = ["--store", str(whole_store.root)], ["--store", str(tmp_path / "here")]
    file = str(tmp_path / "small.zip")
    done = bam_lab("export", str(FIXTURE), "--to", file, *there)
    assert done.code == 0, done.err
    assert "small.zip: 18 stages, " in done.out
    digest = done.out.partition("SHA-256 ")[2].split()[0]
    again = bam_lab("export", str(FIXTURE), "--to", file, *there)
    assert again.code == 2 and "must not be there yet" in again.err
    wrong = bam_lab("import", file, "--sha256", "0" * 64, *here)
    assert wrong.code == 2 and f"got {digest}" in wrong.err
    came = bam_lab("import", file, "--sha256", digest, *here)
    assert came.code == 0, came.err
    assert "18 stages of ablation-scale came into" in came.out
    command = came.out.partition("Report: bam-lab ")[2].split()
    assert command[:4] == ["report", "ablation", "--scale", "scale"]
    told = json.loads(bam_lab("import", file, "--json", *here).out)
    assert len(told["kept"]) == 18 and told["stages"] == [] == told["differing"]
    listed = bam_lab("runs", "list", *here).out
    assert "imported" in listed
    planned = json.loads(bam_lab("plan", str(FIXTURE), "--replicates", "2", "--json", *here).out)
    left = {row["label"] for row in planned["stages"] if not row["done"]}
    assert {"corpus", "seed_model", "expert law r1"} <= left and "expert law r0" not in left
    assert planned["corpus_built"]
    text = bam_lab("data", "show", str(FIXTURE.parent / "corpus.yaml"), *here)
    assert text.code == 2 and "data build" in text.err  # its record came, its text did not
    nothing = bam_lab("export", "bam-perplexity", "--to", str(tmp_path / "no.zip"), *here)
    assert nothing.code == 2 and "nothing of this ablation is in the store" in nothing.err
