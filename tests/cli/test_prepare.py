"""`bam-lab prepare`: text only; afterwards a run needs no network."""

import json
import socket
import sys
from pathlib import Path

import datasets
import pytest
from rich.console import Console

from bam_lab.record.store import Store
from bam_lab.run.reproduce import RunOptions, run_ablation
from bam_lab.spec.load import load_ablation
from tests.cli.command import bam_lab
from tests.cli.test_data_add import write_poems

ABLATION = str(Path(__file__).parents[1] / "fixtures" / "ablation.yaml")
OFFLINE = (sys.executable, str(Path(__file__).with_name("offline_worker.py")))


def test_makes_text_and_nothing_else_and_settles_nothing(tmp_path):
    store = tmp_path / "store"
    add = ("data", "add", "poems", str(write_poems(tmp_path / "poems.jsonl")))
    assert bam_lab(*add, "--store", str(store)).code == 0
    command = ("prepare", ABLATION, "--domain", "poems", "--quiet", "--store", str(store))
    done = bam_lab(*command)
    assert done.code == 0, done.err
    kinds = sorted(path.name.partition("-")[0] for path in (store / "stages").iterdir())
    assert kinds == ["corpus", "tokenizer"]
    assert not (store / "numerics.json").exists()  # another machine may train
    for path in (store / "stages").iterdir():
        assert f"stages/{path.name}" in done.out
    assert f"  {tmp_path}\n" in done.out  # where the poems lie
    assert f"bam-lab run {ABLATION} --domain poems --store {store}" in done.out
    assert "2 of 2 stages done, 2 of them now." in done.out
    assert "2 of 2 stages done, 0 of them now." in bam_lab(*command).out


def test_the_documents_of_tasks_are_prepared_too(tmp_path):
    ablation = str(Path(ABLATION).with_name("evaluation.yaml"))
    store = Store(tmp_path)
    done = bam_lab("prepare", ablation, "--quiet", "--store", str(tmp_path))
    assert done.code == 0, done.err
    kinds = sorted(path.name.partition("-")[0] for path in (tmp_path / "stages").iterdir())
    assert kinds == ["build_tasks", "corpus", "tokenizer"]
    (built,) = (tmp_path / "stages").glob("build_tasks-*")
    assert store.is_done(built.name) and f"stages/{built.name}" in done.out
    assert not (tmp_path / "numerics.json").exists()


def test_what_lm_evals_tasks_read_of_the_hub_is_asked_for(tmp_path, monkeypatch):
    """The hub is a stub that has nothing."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_VERBOSITY", "HF_ALLOW_CODE_EVAL"):
        monkeypatch.setenv(name, "1")  # what is set is taken back
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    asked = []

    def load(path=None, name=None, **options):
        asked.append(path)
        raise ConnectionError(f"Couldn't reach '{path}' on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", load)
    change = ("--set", "evaluate.suites=[law-legalbench]")
    done = bam_lab("prepare", ABLATION, *change, "--quiet", "--store", str(tmp_path / "store"))
    assert done.code == 2
    assert asked == ["nguha/legalbench"]
    assert (
        "Couldn't reach 'nguha/legalbench' on the Hub. Its data set must be read once" in done.err
    )
    assert f"  {tmp_path / 'hub' / 'datasets'}\n" in done.out


def test_an_order_is_prepared_too(tmp_path):
    planned = bam_lab(
        "plan", ABLATION, "--set", "recipe.order=similar", "--json", "--store", str(tmp_path)
    )
    assert "order" in {stage["name"] for stage in json.loads(planned.out)["stages"]}


def test_a_run_afterwards_needs_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    assert bam_lab("prepare", ABLATION, "--quiet", "--store", str(tmp_path)).code == 0

    def refuse(*arguments, **options):
        raise AssertionError("a run after prepare reached for the network")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    resolved = load_ablation(ABLATION)
    options = RunOptions(workers=1, quiet=True, command=OFFLINE)
    outcome = run_ablation(resolved, Store(tmp_path), 1, options, Console(quiet=True))
    assert outcome.exit_code == 0, outcome.failures
    assert outcome.ran > 5


def test_the_offline_worker_is_offline():
    from tests.cli import offline_worker

    with pytest.MonkeyPatch.context() as patch:
        offline_worker.cut(patch.setattr)
        with pytest.raises(AssertionError, match="network"):
            socket.create_connection(("localhost", 1))


def test_a_corpus_that_cannot_be_built_is_said(tmp_path):
    done = bam_lab(
        "prepare", ABLATION, "--set", "corpus.domains.law.min_megabytes=0.9", "--quiet",
        "--store", str(tmp_path),
    )  # fmt: skip
    assert done.code == 2
    assert "corpus failed" in done.out
    assert "A machine without" not in done.out
