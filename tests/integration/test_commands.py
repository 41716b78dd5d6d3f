"""The commands on a finished store: nothing runs again, the report is made, plans say so."""

import json
import time
from pathlib import Path

from bam_lab.record import metrics
from bam_lab.record.store import Store
from tests.cli.command import bam_lab

FIXTURE = "tests/fixtures/ablation.yaml"


def tree(store: Store) -> dict[str, int]:
    """Return every file of the store's stages with its time of change."""
    files = (path for path in (store.root / "stages").rglob("*") if path.is_file())
    return {str(path): path.stat().st_mtime_ns for path in files}


def test_reproduce_a_second_time_only_reports(whole_store: Store) -> None:
    before, started = tree(whole_store), time.monotonic()
    done = bam_lab("reproduce", FIXTURE, "--replicates", "1", "--store", str(whole_store.root))
    assert done.code == 0, done.err
    assert time.monotonic() - started < 20
    assert tree(whole_store) == before
    assert "18 of 18 stages done, 0 of them now." in done.out
    assert "soft" in done.out and "general" in done.out
    page = done.out.partition("Report: ")[2].splitlines()[0]
    assert Path(page).read_text().startswith("<!")


def test_plan_knows_what_is_done_and_how_long_it_took(whole_store: Store) -> None:
    arguments = ("plan", FIXTURE, "--replicates", "1", "--store", str(whole_store.root), "--json")
    made = json.loads(bam_lab(*arguments).out)
    assert made["corpus_built"]
    assert all(row["done"] for row in made["stages"])
    assert made["seconds_left"] == 0
    assert "measured" in made["time_from"]
    again = ("plan", FIXTURE, "--replicates", "2", "--store", str(whole_store.root), "--json")
    more = json.loads(bam_lab(*again).out)
    done = {row["label"] for row in more["stages"] if row["done"]}
    assert "seed_model" in done and "mixture soft r0" in done and "mixture soft r1" not in done
    assert more["seconds_left"] > 0


def test_ledgers_hold_what_the_plan_said(whole_store: Store) -> None:
    arguments = ("plan", FIXTURE, "--replicates", "1", "--store", str(whole_store.root), "--json")
    for row in json.loads(bam_lab(*arguments).out)["stages"]:
        if row["steps"]:
            ledger = json.loads((whole_store.stage(row["key"]) / "ledger.json").read_text())
            assert ledger["steps"] == row["steps"]
            assert ledger["tokens"] == row["tokens"]
            assert ledger["training_flops"] == row["training_flops"]
            assert ledger["executed_flops"] == row["executed_flops"]


def test_logs_hold_churn_where_there_are_routers(whole_store: Store) -> None:
    arguments = ("plan", FIXTURE, "--replicates", "1", "--store", str(whole_store.root), "--json")
    kinds: dict[str, set[str]] = {}
    for stage in json.loads(bam_lab(*arguments).out)["stages"]:
        if stage["steps"]:
            rows = metrics.read(whole_store.stage(stage["key"]) / metrics.NAME)
            assert all("loss_max" in row for row in rows if "loss" in row)
            churn = [row["churn"] for row in rows if "churn" in row]
            assert all(0 <= value <= 1 for point in churn for value in point.values())
            kinds[stage["label"]] = {kind for point in churn for kind in point}
    assert kinds["seed_model"] == kinds["expert law r0"] == set()
    assert kinds["mixture btx r0"] == {"ffn"}
    assert kinds["mixture soft r0"] == {"ffn", "attention"}


def test_report_as_json_and_from_its_own_results(whole_store: Store, tmp_path: Path) -> None:
    root = str(whole_store.root)
    first = bam_lab("report", FIXTURE, "--store", root, "--out", str(tmp_path / "a"), "--json")
    assert first.code == 0, first.err
    assert json.loads(first.out)["id"] == "ablation"
    results = str(tmp_path / "a" / "results.json")
    second = bam_lab("report", results, "--out", str(tmp_path / "b"), "--json")
    assert second.out == first.out
    for name in ("report.html", "table.tex", "table.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    useless = bam_lab("report", results, "--scale", "nano")
    assert useless.code == 2
    assert "must be given without --scale" in " ".join(useless.err.split())


def test_a_report_of_nothing_says_what_to_do(tmp_path: Path) -> None:
    done = bam_lab("report", FIXTURE, "--store", str(tmp_path))
    assert done.code == 2
    assert "bam-lab run" in done.err
    missing = bam_lab("report", str(tmp_path / "results.json"))
    assert missing.code == 2
    assert "must be readable" in missing.err


def test_prove_takes_the_stores_own_models(whole_store: Store) -> None:
    root = str(whole_store.root)
    done = bam_lab("prove", FIXTURE, "--store", root, "--arm", "soft", "--arm", "btx", "--json")
    assert done.code == 0, done.err
    for arm in json.loads(done.out)["arms"]:
        assert whole_store.is_done(arm["models"])
        stored = json.loads((whole_store.stage(arm["models"]) / "receipt.json").read_text())
        for key, fact in arm["facts"].items():
            assert fact == stored[key], key
    told = bam_lab("prove", FIXTURE, "--store", root, "--arm", "btx")
    assert "On the store's models at step 0 and its held-out text: btx." in " ".join(
        told.out.split()
    )
