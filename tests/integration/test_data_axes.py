"""Arms that read different text, from their spec to their report."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bam_lab.record.store import Store
from bam_lab.report.evidence import Evidence, read_results
from bam_lab.run.graph import build_graph
from bam_lab.run.index import index_key
from bam_lab.run.reproduce import RunOptions, run_ablation
from bam_lab.run.stage import Graph
from bam_lab.spec.load import load_ablation
from bam_lab.spec.resolved import ResolvedAblation
from tests.cli.command import bam_lab

DATA = "tests/fixtures/data.yaml"
WORDS = ["link", "menu", "login", "price", "offer", "review", "cart", "home", "news", "page"]


def web(folder: Path) -> str:
    """Write pages; return the override that holds them out as a whole."""
    chance = random.Random(0)
    pages = [{"text": " ".join(chance.choices(WORDS, k=80)) + f" {n}"} for n in range(20)]
    (folder / "pages.jsonl").write_text("".join(f"{json.dumps(page)}\n" for page in pages))
    domain = {
        "title": "pages",
        "min_megabytes": 0.001,
        "max_megabytes": 1.0,
        "hold_out": {"valid": 0.0, "test": 1.0, "min_documents": 1, "min_megabytes": 0.001},
        "sources": [
            {
                "kind": "files",
                "name": "pages",
                "folder": str(folder),
                "pattern": "pages.jsonl",
                "licence": "CC0-1.0",
                "max_megabytes": 1.0,
            }
        ],
    }
    return f"corpus.domains.web={json.dumps(domain)}"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[ResolvedAblation, Store]:
    folder = tmp_path_factory.mktemp("data")
    resolved = load_ablation(DATA, overrides=[web(folder)])
    store = Store(folder / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        options, console = RunOptions(workers=1), Console(quiet=True)
        outcome = run_ablation(resolved, store, 1, options, console)
    assert outcome.exit_code == 0, (outcome.failures, outcome.missing)
    return resolved, store


@pytest.fixture(scope="module")
def graph(ran: tuple[ResolvedAblation, Store]) -> Graph:
    resolved, store = ran
    corpus = build_graph(resolved, 1, None).corpus
    digest = json.loads((store.stage(corpus.key) / "corpus.json").read_text())["digest"]
    return build_graph(resolved, 1, digest)


@pytest.fixture(scope="module")
def evidence(ran: tuple[ResolvedAblation, Store]) -> Evidence:
    resolved, store = ran
    out = store.root / "report"
    changes = [part for text in resolved.overrides for part in ("--set", text)]
    done = bam_lab("report", DATA, *changes, "--store", str(store.root), "--out", str(out))
    assert done.code == 0, done.err
    return read_results(out / "results.json")


def ledger(ran: tuple[ResolvedAblation, Store], key: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ran[1].stage(key) / "ledger.json").read_text())
    return found


def test_each_branch_and_each_phase_reads_its_own_mix(
    ran: tuple[ResolvedAblation, Store], graph: Graph
) -> None:
    stages = [s for s in graph.stages.values() if s.name in ("expert", "mixture")]
    # Three each: 10%, 50%, repeated, similar.
    assert len([s for s in stages if s.name == "expert"]) == 12
    for stage in stages:
        read = {name for name, weight in stage.spec["mix"].items() if weight}
        assert set(ledger(ran, stage.key)["epochs"]) == read, stage.label


def test_general_text_is_read_as_often_as_asked(
    ran: tuple[ResolvedAblation, Store], graph: Graph
) -> None:
    stages = [s for s in graph.stages.values() if "pools" in s.spec]
    assert len(stages) == 4  # three branches and the mixture phase of `repeats`
    for stage in stages:
        assert ledger(ran, stage.key)["epochs"]["general"] == pytest.approx(4, rel=0.2)
        size = stage.spec["pools"]["general"]
        draws = ledger(ran, stage.key)["epochs"]["general"] * size
        assert 3 * size < draws <= 4 * size, stage.label


def test_similar_documents_share_a_sequence_of_the_same_text(
    ran: tuple[ResolvedAblation, Store], graph: Graph
) -> None:
    (order,) = [s for s in graph.stages.values() if s.name == "order"]
    phase = graph.arm("similar", 0)
    assert phase.inputs["order"] == order.fingerprint
    found = json.loads((ran[1].stage(order.key) / "order.json").read_text())
    assert set(found) == {"general", "code", "law", "math"}
    assert all(one["similarity"] > one["similarity_random"] for one in found.values())
    random_phase = graph.arm("btx", 0)
    assert phase.spec == random_phase.spec
    one, other = (ledger(ran, stage.key) for stage in (phase, random_phase))
    assert one["shares"] == other["shares"]
    weights = [ran[1].stage(s.key) / "checkpoint" for s in (phase, random_phase)]
    names = {path.name for path in weights[0].iterdir() if path.suffix == ".safetensors"}
    assert names
    assert any((weights[0] / n).read_bytes() != (weights[1] / n).read_bytes() for n in names)


def test_what_is_equal_is_done_once(graph: Graph) -> None:
    upcycles = {arm: graph.arm(arm, 0).inputs.get("upcycle") for arm in ("btx", "mix")}
    assert upcycles["btx"] == upcycles["mix"]
    assert graph.arm("share", 0).inputs["upcycle"] == graph.arm("share-too", 0).inputs["upcycle"]
    assert len([s for s in graph.stages.values() if s.name == "upcycle"]) == 4


def test_what_is_held_out_as_a_whole_is_scored_by_every_model(evidence: Evidence) -> None:
    assert evidence.domains == ("general", "code", "law", "math")
    assert evidence.held_out_only == ("web",)
    models = {(cell.role, cell.name) for cell in evidence.cells}
    for role, name in models:
        (cell,) = [c for c in evidence.cells if (c.role, c.name, c.domain) == (role, name, "web")]
        assert cell.nll and not cell.missing, (role, name)


def test_every_arm_has_its_step_0_and_its_receipt(evidence: Evidence) -> None:
    arms = {"btx", "share", "share-too", "repeats", "mix", "similar"}
    assert {cell.name for cell in evidence.cells if cell.role == "step-0"} == arms
    assert {receipt.arm for receipt in evidence.receipts} == arms
    assert all(cell.nll for cell in evidence.cells)


def test_the_report_names_branches_by_what_they_read(
    ran: tuple[ResolvedAblation, Store], evidence: Evidence
) -> None:
    page = (ran[1].root / "report" / "report.html").read_text()
    assert "code expert with 50% general" in page
    assert "math expert with general text read 4 times" in page
    assert evidence.arm("share").branches[1] == "code with 50% general"
    assert evidence.arm("dense").data["mix"] == {"code": 0.5, "general": 0.5}
    assert "-overridden" in index_key(ran[0])
