"""`runs` and `doctor` on stores made by hand."""

import json
from importlib.metadata import version

import pytest

from bam_lab.cli.doctor import doctor
from bam_lab.evaluate.sandbox import why_unsafe
from bam_lab.record.store import Store
from tests.cli.command import bam_lab

DONE, FAILED, WORKING = (
    f"{name}-{'0' * 15}{i}" for i, name in enumerate(["mixture", "expert", "seed_model"])
)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("BAM_LAB_STORE", str(tmp_path))
    made = Store(tmp_path)
    made.prepare()
    folder = made.open_work(DONE)
    (folder / "spec.json").write_text(
        json.dumps({"label": "mixture soft r0", "spec": {"steps": 7}, "inputs": {"upcycle": "ab"}})
    )
    (folder / "ledger.json").write_text(json.dumps({"tokens": 4_096_000}))
    (folder / "manifest.json").write_text(json.dumps({"wall_s": 61.0, "packages": {"torch": "9"}}))
    (folder / "metrics.jsonl").write_text('{"step": 7, "loss": 3.5}\n')
    made.publish(DONE)
    made.open_work(WORKING)
    made.write_failure(FAILED, {"label": "expert law r0", "reason": "the loss is NaN at step 3"})
    return made


def test_list(store):
    out = bam_lab("runs", "list").out
    assert "mixture soft r0" in out
    assert "4.10M" in out
    assert "1 min 01 s" in out
    assert "in progress" in out
    assert "the loss is NaN at step 3" in out
    rows = {row["key"]: row for row in json.loads(bam_lab("runs", "list", "--json").out)}
    assert {key: row["state"] for key, row in rows.items()} == {
        DONE: "done",
        FAILED: "failed",
        WORKING: "in progress",
    }


def test_show(store):
    out = bam_lab("runs", "show", "mixture").out
    assert "steps: 7" in out
    assert "torch: 9" in out
    shown = json.loads(bam_lab("runs", "show", DONE, "--json").out)
    assert shown["last_metrics"] == [{"step": 7, "loss": 3.5}]
    assert json.loads(bam_lab("runs", "show", FAILED, "--json").out)["failure"]["reason"]


def test_show_something_unknown(store):
    done = bam_lab("runs", "show", DONE[:-1] + "9")
    assert done.code == 2
    assert f"Did you mean `{DONE}`?" in done.err
    assert bam_lab("runs", "show", "../../etc").code == 2


def test_an_empty_store(tmp_path):
    done = bam_lab("runs", "list", "--store", str(tmp_path / "none"))
    assert done.code == 0
    assert "Nothing ran" in done.out
    assert not (tmp_path / "none").exists()


def test_doctor(store):
    facts = json.loads(bam_lab("doctor", "--json").out)
    assert facts["cores"] >= 1
    assert facts["store_stages_done"] == 1
    assert facts["precision"] in ("bf16-mixed", "float32")
    assert set(facts["extras"]) == {
        "train",
        "data",
        "hub",
        "embed",
        "faiss",
        "report",
        "hf",
        "eval",
        "sweep",
        "wandb",
        "slurm",
        "ray",
    }
    assert facts["lm_eval"] == version("lm-eval")
    assert facts["no_sandbox_because"] == why_unsafe()
    out = bam_lab("doctor", columns=80).out
    assert f"lm-eval        {version('lm-eval')}" in out
    assert "cores" in out and "disk" in out
    assert max(len(line) for line in out.splitlines()) <= 80


@pytest.mark.parametrize(
    ("why", "shown"),
    [
        (None, "sandbox        yes          code that models write is shut in"),
        ("namespaces are Linux's, and this is plan9", "sandbox        no           namespaces are"),
    ],
)
def test_doctor_says_whether_code_can_be_shut_in(why, shown, monkeypatch):
    monkeypatch.setattr("bam_lab.evaluate.sandbox.why_unsafe", lambda: why)
    assert shown in bam_lab("doctor", columns=120).out
    assert json.loads(bam_lab("doctor", "--json").out)["no_sandbox_because"] == why


def test_doctor_names_the_extra_to_install(monkeypatch, capsys):
    """Square brackets in a table cell are text, not markup."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("bam_lab.cli.doctor._version", lambda package: None)
    doctor(store=None, json=False)
    assert "pip install 'bam-lab[ray]'" in capsys.readouterr().out
