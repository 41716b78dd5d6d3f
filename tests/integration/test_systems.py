"""Every system from its spec to its report: planned, upcycled, proved, trained, rendered."""

import json
from pathlib import Path

from rich.console import Console

from bam_lab.record.proofs import verdicts
from bam_lab.record.store import Store
from bam_lab.report.evidence import read_results
from bam_lab.report.standing import unranked
from bam_lab.run.reproduce import RunOptions, run_ablation
from bam_lab.spec.load import load_ablation
from tests.cli.command import bam_lab

SYSTEMS = "tests/fixtures/systems.yaml"


def test_systems_run_as_planned(tmp_path: Path) -> None:
    store = Store(tmp_path)
    options, console = RunOptions(workers=1), Console(quiet=True)
    outcome = run_ablation(load_ablation(SYSTEMS), store, 1, options, console)
    assert outcome.exit_code == 0, outcome.failures
    made = json.loads(bam_lab("plan", SYSTEMS, "--store", str(tmp_path), "--json").out)
    assert all(row["done"] for row in made["stages"])
    for row in made["stages"]:
        folder = store.stage(row["key"])
        if (folder / "receipt.json").exists():
            receipt = json.loads((folder / "receipt.json").read_text())
            found = verdicts(receipt)
            assert not [v for v in found if v.outcome == "unexpected"], row["label"]
            gradients = receipt.get("router_gradients", {})
            assert all(g["learns"] for g in gradients.values()), row["label"]
        if row["steps"]:
            spent = json.loads((folder / "ledger.json").read_text())
            assert spent["training_flops"] == row["training_flops"], row["label"]
            assert spent["executed_flops"] == row["executed_flops"], row["label"]
    done = bam_lab("report", SYSTEMS, "--store", str(tmp_path), "--out", str(tmp_path / "report"))
    assert done.code == 0, done.err
    evidence = read_results(tmp_path / "report" / "results.json")
    not_ranked = {arm.name for arm in evidence.arms if unranked(evidence, arm.name)}
    # Not trained, or scored on later tokens.
    assert not_ranked == {"average", "btm", "smear", "soft-moe"}
    page = (tmp_path / "report" / "report.html").read_text()
    assert "BROKEN inside the first segment (" in page
    assert "Lory routes its first segment by that segment&#39;s own mean (lory" in page
