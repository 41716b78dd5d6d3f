"""Runs on a store that imported results: they trust them, and make again only what must be."""

import io
import json
import sys
from pathlib import Path

import pytest
from fakes import COMMAND, SETTINGS, Recorder, graph, stage
from rich.console import Console

from bam_lab.record.export import export
from bam_lab.record.files import write_json
from bam_lab.record.fingerprint import fingerprint
from bam_lab.record.imported import import_results
from bam_lab.record.stages import KNOWN_BY
from bam_lab.record.store import Store
from bam_lab.run.outcome import Settings
from bam_lab.run.reproduce import RunOptions, RunOutcome, build_corpus, current_graph, run_ablation
from bam_lab.run.scheduler import run_graph, unfinished
from bam_lab.run.stage import Graph
from bam_lab.spec.load import load_ablation
from bam_lab.spec.resolved import ResolvedAblation

BROKEN = (sys.executable, "-c", "raise SystemExit(3)")


def labels(attempts: Path) -> list[str]:
    return [line.split(" ")[0] for line in attempts.read_text().splitlines()]


def moved(whole: Graph, there: Store, here: Store, leave: tuple[str, ...] = ()) -> None:
    """Export what `there` did of a graph of fake stages, and import it `here`."""
    rows = [
        {"key": s.key, "fingerprint": s.fingerprint}
        for s in whole.stages.values()
        if s.label not in leave
    ]
    folder = there.root / "ablations" / "fake"
    folder.mkdir(parents=True)
    named = {"ablation": {"id": "fake"}, "scale_name": "nano", "overrides": []}
    write_json(folder / "index.json", {**named, "stages": rows})
    write_json(there.root / "numerics.json", {"precision": "float32", "device": "cpu"})
    import_results(here, export(there, "fake", there.root / "small.zip").path)


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Store, Store]:
    there, here = Store(tmp_path / "there"), Store(tmp_path / "here")
    there.prepare()
    return there, here


def test_all_that_was_imported_is_trusted(stores, tmp_path: Path) -> None:
    there, here = stores
    first = stage("first", tmp_path / "attempts")
    whole = graph(first, stage("last", tmp_path / "attempts", needs=(first,)))
    run_graph(whole, there, SETTINGS, Recorder())
    moved(whole, there, here)
    assert unfinished(whole, here) == []
    broken = Settings(SETTINGS.numerics, command=BROKEN)
    assert run_graph(whole, here, broken, Recorder()).finished == 0


def test_only_what_a_new_stage_needs_is_made_again(stores, tmp_path: Path) -> None:
    there, here = stores
    attempts = tmp_path / "attempts"
    root = stage("root", attempts)
    left, right = (stage(name, attempts, needs=(root,)) for name in ("left", "right"))
    leaf = stage("leaf", attempts, needs=(left,))
    old = graph(root, left, right, leaf)
    run_graph(old, there, SETTINGS, Recorder())
    moved(old, there, here)
    attempts.unlink()
    new = stage("new", attempts, needs=(left,))
    whole = graph(*old.stages.values(), new)
    assert [s.label for s in unfinished(whole, here)] == ["root", "left", "new"]
    done = run_graph(whole, here, SETTINGS, Recorder())
    assert done.failures == {} and done.finished == 3
    assert labels(attempts) == ["root", "left", "new"]
    assert here.is_whole(left.key) and not here.is_whole(right.key)
    assert unfinished(whole, here) == []


def test_text_itself_is_made_where_it_is_wanted(stores, tmp_path: Path) -> None:
    there, here = stores
    whole = graph(stage("only", tmp_path / "attempts"))
    run_graph(whole, there, SETTINGS, Recorder())
    moved(whole, there, here)
    wanted = Settings(SETTINGS.numerics, command=COMMAND, whole=True)
    assert run_graph(whole, here, wanted, Recorder()).finished == 1
    assert here.is_whole(next(iter(whole.stages.values())).key)


@pytest.fixture
def resolved(fixture_ablation: Path) -> ResolvedAblation:
    return load_ablation(str(fixture_ablation))


def run(resolved: ResolvedAblation, store: Store, *command: str) -> RunOutcome:
    options = RunOptions(precision="float32", command=command or COMMAND)
    return run_ablation(resolved, store, 1, options, Console(file=io.StringIO()))


@pytest.fixture
def came(
    resolved: ResolvedAblation, stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Store:
    """Return a store that has the fixture's results from another one."""
    monkeypatch.setenv("ATTEMPTS", str(tmp_path / "attempts"))
    there, here = stores
    assert run(resolved, there).exit_code == 0
    import_results(here, export(there, "ablation-scale", tmp_path / "small.zip").path)
    (tmp_path / "attempts").unlink()
    return here


def test_an_ablation_that_came_whole_runs_nothing(resolved, came: Store, tmp_path: Path) -> None:
    assert current_graph(resolved, came, 1).known  # by the corpus's digest, without its text
    outcome = run(resolved, came, *BROKEN)
    assert outcome.exit_code == 0 and outcome.ran == 0
    assert not (tmp_path / "attempts").exists()


def test_a_changed_arm_makes_again_what_it_reads(came: Store, fixture_ablation, tmp_path) -> None:
    """A changed arm: its mixture is made from experts whose weights stayed elsewhere."""
    changed = load_ablation(str(fixture_ablation), overrides=["arms.soft.kv=per_expert"])
    outcome = run(changed, came)
    assert outcome.exit_code == 0
    done = [line.split(" ")[0] for line in (tmp_path / "attempts").read_text().splitlines()]
    assert {"corpus", "tokenizer", "seed_model", "expert", "upcycle", "mixture"} <= set(done)
    assert "evaluate" in done  # of the changed arm
    assert outcome.ran < len(outcome.graph.stages)
    scored = [
        s for s in outcome.graph.stages.values() if (s.name, s.role) == ("evaluate", "expert")
    ]
    assert scored and all((came.stage(s.key) / "imported.json").exists() for s in scored)


def test_other_text_is_a_failure_in_words(
    came: Store, resolved, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = current_graph(resolved, came, 1).corpus.key
    manifest = came.stage(key) / "manifest.json"
    found = json.loads(manifest.read_text())
    found["facts"]["digest"] = "what it was there"
    write_json(manifest, found)
    outcome = build_corpus(
        resolved.corpus, came, RunOptions(command=COMMAND), Console(file=io.StringIO())
    )
    assert outcome.exit_code == 2
    assert "got other text when it was made again here" in outcome.failures["corpus"]
    assert came.is_done(key) and not came.is_whole(key)


def test_a_stage_is_known_by_what_its_spec_json_says(resolved: ResolvedAblation) -> None:
    """What import checks holds for every stage that there is."""
    for one in current_graph(resolved, Store(Path("none")), 1).stages.values():
        spec = one.as_spec_json()
        known = KNOWN_BY.get(one.name, one.inputs)
        parts = {name: spec[name] for name in ("stage", "spec", "revision")}
        inputs = {role: value for role, value in one.inputs.items() if role in known}
        assert fingerprint({**parts, "inputs": inputs}) == one.fingerprint, one.label
