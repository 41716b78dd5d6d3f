"""Everything that is measured beside held-out loss, end to end on the fixture."""

import csv
import json
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from bam_lab.record.export import export
from bam_lab.record.imported import import_results
from bam_lab.record.store import Store
from bam_lab.report.collect import collect
from bam_lab.report.evidence import Evaluated, Evidence
from bam_lab.report.render import NAMES, render
from bam_lab.run.reproduce import RunOptions, RunOutcome, run_ablation
from bam_lab.spec.load import load_ablation
from tests.integration.conftest import FIXTURE

SPEC = FIXTURE.with_name("evaluation.yaml")


def run(store: Store, *overrides: str) -> RunOutcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(FIXTURE.parents[2]))
        resolved = load_ablation(str(SPEC), overrides=overrides)
        return run_ablation(resolved, store, 1, RunOptions(workers=1), Console(quiet=True))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    outcome = run(Store(tmp_path_factory.mktemp("evaluation")))
    assert outcome.exit_code == 0, outcome.failures
    return outcome


@pytest.fixture
def store(measured: RunOutcome) -> Store:
    assert measured.index is not None
    return Store(measured.index.parents[2])


@pytest.fixture
def evidence(measured: RunOutcome, store: Store) -> Evidence:
    assert measured.index is not None
    return collect(store.root, measured.index)


def of(evidence: Evidence, kind: str, name: str, about: str = "") -> Evaluated:
    (found,) = (
        one
        for one in evidence.evaluations
        if (one.kind, one.name, one.about) == (kind, name, about)
    )
    return found


def rows(store: Store, kind: str, label: str) -> list[dict[str, str]]:
    for folder in sorted(store.root.glob(f"stages/{kind}-*")):
        if json.loads((folder / "spec.json").read_text())["label"] == label:
            with (folder / "scores.csv").open() as file:
                return list(csv.DictReader(file))
    raise AssertionError(label)


def test_every_model_answers_the_suite_once(measured: RunOutcome, evidence: Evidence) -> None:
    asked = [one for one in evidence.evaluations if one.kind == "tasks"]
    names = [(one.role, one.name, one.about) for one in asked]
    assert sorted(names) == sorted(
        [("seed_model", "seed_model", "")]
        + [("expert", name, "") for name in ("code", "law", "math")]
        + [("arm", name, "") for name in ("dense", "soft", "lory")]
        + [("arm", "lory", "re-routed")]
    )
    built = [s for s in measured.graph.stages.values() if s.name == "build_tasks"]
    assert len(built) == 1
    assert {row["task"] for one in asked for row in one.rows} == {"fixture-law", "fixture-words"}


def test_scores_are_tidy_and_say_what_was_asked(store: Store) -> None:
    found = rows(store, "tasks", "tasks mixture soft r0")
    law = next(r for r in found if (r["task"], r["metric"]) == ("fixture-law", "acc_norm"))
    assert law["version"] == "1.0" and law["shots"] == "0" and law["chance"] == "0.5"
    assert law["precision"] and int(law["batch_tokens"]) > 0 and len(law["documents"]) == 64
    folder = next(p for p in store.root.glob("stages/tasks-*") if "soft" in spec_label(p))
    samples = pd.read_parquet(folder / "samples.parquet")
    own = samples[(samples["task"] == "fixture-law") & (samples["metric"] == "acc_norm")]
    assert len(own) == int(law["n"]) and own["prompt_hash"].str.len().eq(64).all()
    assert own["value"].mean() == pytest.approx(float(law["value"]))


def spec_label(folder: Path) -> str:
    return str(json.loads((folder / "spec.json").read_text())["label"])


def test_answers_are_kept_item_by_item(evidence: Evidence) -> None:
    items, found = evidence.items["fixture-law"], of(evidence, "tasks", "soft")
    answers = found.answers["fixture-law"]
    assert len(items["document"]) == len(items["wanted"]) == len(answers["value"])
    right = [g == w for g, w in zip(answers["given"], items["wanted"], strict=True)]
    assert [bool(value) for value in answers["value"]] == right
    assert len(set(items["document"])) < len(items["document"])  # several places of one text


def test_probes_say_what_they_could_not_ask(evidence: Evidence) -> None:
    assert "no router" in of(evidence, "probe", "dense", "distance").left_out["drift"]
    left_out = of(evidence, "probe", "soft", "positions").left_out
    assert "positions must be learned" in left_out["positions"]
    lory = of(evidence, "probe", "lory", "completion")
    assert {row["rule"] for row in lory.rows if "rule" in row} == {"prompt", "segment"}
    assert {row["part"] for row in of(evidence, "probe", "soft", "first_segment").rows} == {
        "first",
        "later",
    }


def test_sliding_windows_give_every_token_more_context(store: Store, evidence: Evidence) -> None:
    sliding = {
        row["domain"]: row["value"]
        for row in of(evidence, "probe", "dense", "sliding").rows
        if row["metric"] == "nll"
    }
    disjoint = {cell.domain: cell.nll for cell in evidence.cells if cell.name == "dense"}
    for domain, nll in disjoint.items():
        assert nll is not None and abs(sliding[domain] - nll) < 0.2
    assert sliding["*"] == pytest.approx(sum(sliding[d] for d in disjoint) / len(disjoint))


def test_latency_is_timed_in_rounds_by_arm(evidence: Evidence) -> None:
    (found,) = (one for one in evidence.evaluations if one.kind == "latency")
    timed = {(turn["arm"], turn["batch"], turn["computed"]) for turn in found.turns}
    arms = ("dense", "soft", "lory")
    assert timed == {(a, b, c) for a in arms for b in (1, 2) for c in ("apart", "together")}
    cells = [c for c in evidence.measures if (c.arm, c.measure) == ("soft", "latency")]
    assert len(cells) > 2 and all(c.value and c.value > 0 for c in cells)


def test_a_second_run_does_nothing_and_a_new_probe_trains_nothing(
    measured: RunOutcome, store: Store, tmp_path: Path
) -> None:
    assert run(store).ran == 0
    again = run(
        store,
        "evaluate.probes=[{probe: sliding, context: 0.25}]",
        "report.columns=[heldout/*/perplexity]",
    )
    new = {spec_label(p) for p in store.root.glob("stages/probe-*")}
    assert again.ran == 3 and again.exit_code == 0
    assert {"probe sliding mixture dense r0"} <= new


def test_the_report_shows_it_and_it_travels(
    measured: RunOutcome, store: Store, evidence: Evidence, tmp_path: Path
) -> None:
    assert measured.index is not None
    told = render(store.root, measured.index, tmp_path / "report")
    page = told.paths["report.html"].read_text()
    for heading in ("Suite fixture-suite", "Completions of 8 tokens", "Needles: needle"):
        assert heading in page
    assert "Accuracy by group of tasks" in told.paths["table.tex"].read_text()
    packed = export(store, measured.index.parent.name, tmp_path / "out.zip")
    assert packed.missing == 0
    there = Store(tmp_path / "there")
    import_results(there, packed.path)
    again = render(there.root, there.root / "ablations" / measured.index.parent.name / "index.json")
    for name in NAMES:
        assert again.paths[name].read_bytes() == told.paths[name].read_bytes(), name
    assert run(there).ran == 0
    verdicts = {claim["id"]: claim["verdict"] for claim in told.summary["claims"]}
    assert verdicts["faster"] in ("holds", "contradicted", "inconclusive", "no difference")
    assert verdicts["law-at-home"] == "not judged (1 replicate)"
