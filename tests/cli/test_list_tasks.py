"""`list --tasks` and `--suites`: every one, what guessing gives, what is not on this machine."""

import json
import shutil

import pytest

from bam_lab import resources
from bam_lab.evaluate.tasks.available import hub_folder
from bam_lab.spec.task_files import harness_file, known_suites, known_tasks
from tests.cli.command import bam_lab


@pytest.fixture(autouse=True)
def empty(monkeypatch, tmp_path):
    """Have nothing: neither a store nor the hub's folders."""
    monkeypatch.setenv("BAM_LAB_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    for name in ("HF_DATASETS_CACHE", "HF_MODULES_CACHE"):
        monkeypatch.delenv(name, raising=False)


def listed(*options):
    done = bam_lab("list", *options, "--json")
    assert done.code == 0, done.err
    return {one["name"]: one for one in json.loads(done.out)}


def test_every_task_with_what_it_lacks():
    found = listed("--tasks")
    assert list(found) == [*known_tasks(), *harness_file().tasks]
    law, loss, gsm = found["law-continuation"], found["human-eval-loss"], found["gsm8k"]
    assert (law["chance"], law["metric"], law["group"]) == (0.25, "acc_norm", "law")
    assert law["missing"] == [
        {"tasks": ["law-continuation"], "kind": "corpus", "what": "a built corpus",
         "command": "bam-lab data build"},
    ]  # fmt: skip
    assert "default" in law["suites"] and loss["chance"] is None
    assert loss["missing"][0]["command"] == "bam-lab prepare --task human-eval-loss"
    assert gsm["of"] == "lm-eval" and gsm["suites"] == [
        "bam-downstream-lsat",
        "bam-downstream",
        "btx",
    ]
    assert [part["what"] for part in gsm["missing"]] == ["the data set openai/gsm8k"]
    assert {name for name, one in found.items() if one["executes"]} == {
        "human-eval", "humaneval", "mbpp",
    }  # fmt: skip


def test_every_suite_with_what_it_lacks():
    found = listed("--suites")
    assert list(found) == [*known_suites()]
    default, lory = found["default"], found["lory"]
    assert [part["what"] for part in default["missing"]] == [
        "a built corpus", "human-eval 1.0.3", "evals 3.0.1.post1",
    ]  # fmt: skip
    assert {one["task"]: one["chance"] for one in default["tasks"]}["human-eval-loss"] is None
    assert lory["source"].startswith("arXiv:2405.03133") and lory["offline"] == "default"
    assert {part["command"] for part in lory["missing"]} == {"bam-lab prepare --suite lory"}
    assert "Yelp" in {part["name"] for part in lory["lacking"]}


def test_what_is_there_is_not_missing(tmp_path):
    (tmp_path / "store" / "cache" / "pypi" / "evals-3.0.1.post1-wheel").mkdir(parents=True)
    (hub_folder("datasets") / "openai___gsm8k" / "main").mkdir(parents=True)
    found = listed("--tasks")
    assert found["tort-law"]["missing"] == found["gsm8k"]["missing"] == []
    assert listed("--suites")["law-tort"]["missing"] == []


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_tables_at_any_width(columns):
    tasks = bam_lab("list", "--tasks", columns=columns)
    suites = bam_lab("list", "--suites", columns=columns)
    for done in (tasks, suites):
        assert done.code == 0
        assert max(map(len, done.out.splitlines())) <= max(columns, 50)
    if columns == 80:
        assert all(name in tasks.out for name in known_tasks())
        assert all(name in suites.out for name in known_suites())
        assert "a built corpus" in tasks.out and "runs code that models write" in tasks.out
        assert "`bam-lab prepare --suite NAME` brings what is missing." in suites.out
        assert "nothing here can ask: QuAC" in suites.out


def test_other_options_have_no_effect_and_are_refused():
    done = bam_lab("list", "--tasks", "--claim", "C1", "--scale", "nano")
    assert done.code == 2
    assert "--tasks must stand without --claim, --scale. Leave one out." in done.err
    assert "--tasks must stand without --suites" in bam_lab("list", "--tasks", "--suites").err


def test_a_file_with_problems_is_told_and_the_others_are_listed(monkeypatch, tmp_path):
    shutil.copytree(resources.folder("eval"), tmp_path / "eval")
    path = tmp_path / "eval" / "tasks" / "tort-law" / "task.yaml"
    path.write_text(path.read_text().replace("chance: 0.25", "chance: 0.5"))
    own = resources.folder
    monkeypatch.setattr(
        resources, "folder", lambda kind: tmp_path / "eval" if kind == "eval" else own(kind)
    )
    for option, name in (("--tasks", "jee-math"), ("--suites", "law-reasoning")):
        done = bam_lab("list", option)
        assert done.code == 2
        assert f"{path}:9:1: chance must be 0.25" in done.err
        assert name in done.out
