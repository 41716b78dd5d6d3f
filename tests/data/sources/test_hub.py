"""Hugging Face data sets: saved to disk, as files in a folder, and streamed from a fake hub."""

import gzip
import json
import os
import subprocess
import sys

import datasets
import pytest
import zstandard

from bam_lab.data.sources import hub
from bam_lab.data.sources.pieces import Tally
from bam_lab.errors import InputError
from bam_lab.spec.sources import HubSource

ROWS = [
    {"text": f"text {i}", "set": "a" if i % 3 else "b", "meta": {"lang": "en"}} for i in range(100)
]


def source(dataset, **changes):
    given = dict(
        kind="huggingface", name="mine", dataset=str(dataset), licence="CC0-1.0", max_megabytes=1.0
    )
    return HubSource(**{**given, **changes})


def read(source, cache):
    tally = Tally()
    opened = hub.opened(source, cache)
    found = [d for piece in opened.pieces for d in hub.documents(source, piece, tally)]
    return found, tally


def wanted(rows):
    return [text for text in (row["text"] for row in rows)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    both = {"train": datasets.Dataset.from_list(ROWS), "test": datasets.Dataset.from_list(ROWS[:5])}
    datasets.DatasetDict(both).save_to_disk(folder / "dict")
    both["test"].save_to_disk(folder / "one")
    return folder


def test_a_data_set_saved_to_disk(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "_ROWS_A_PIECE", 30)
    assert len(hub.opened(source(saved / "dict"), tmp_path).pieces) == 4
    found, tally = read(source(saved / "dict"), tmp_path)
    assert found == [(f"row#{i + 1}", row["text"]) for i, row in enumerate(ROWS)]
    assert tally == Tally(entries=100)
    assert len(read(source(saved / "dict", split="test"), tmp_path)[0]) == 5
    assert len(read(source(saved / "one"), tmp_path)[0]) == 5
    assert read(source(saved / "dict", text_field="meta.lang"), tmp_path)[0][0] == ("row#1", "en")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_folder_of_files(tmp_path, kind):
    folder = tmp_path / "files"
    folder.mkdir()
    rows = datasets.Dataset.from_list(ROWS)
    if kind == "jsonl":
        (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        rows.to_parquet(folder / "a.parquet")
    found, _ = read(source(folder, filters={"set": "b"}), tmp_path)
    assert [text for _, text in found] == wanted(row for row in ROWS if row["set"] == "b")


def test_budgets_and_filters(saved, tmp_path):
    def texts(**changes):
        return [text for _, text in read(source(saved / "dict", **changes), tmp_path)[0]]

    assert texts(max_documents=7) == wanted(ROWS[:7])
    assert texts(filters={"set": "b"}, max_documents=4) == wanted(ROWS[:12:3])
    assert texts(filters={"set": "b", "meta.lang": "de"}) == []
    # "text 0" to "text 9" have 6 bytes each
    assert texts(max_read_megabytes=30e-6) == wanted(ROWS[:5])
    assert texts(max_read_megabytes=29e-6) == wanted(ROWS[:4])


def test_rows_without_text_are_counted(tmp_path):
    rows = [{"text": "one"}, {"text": None}, {"text": "two"}]
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "saved")
    found, tally = read(source(tmp_path / "saved"), tmp_path)
    assert found == [("row#1", "one"), ("row#3", "two")]
    assert (tally.entries, tally.broken) == (3, 1)
    assert "row 2: 'text' must hold text, got NoneType" in tally.examples[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "valid"}, "split must be one of train, test, got valid"),
        ({"text_field": "body"}, "must have the field 'body', has 'text', 'set', 'meta'. Mend tex"),
        ({"filters": {"lang": "en"}}, "must have the field 'lang', has .*Mend filters in"),
        ({"subset": "x"}, "subset, files and revision have no effect"),
    ],
)
def test_refuses(saved, tmp_path, changes, message):
    with pytest.raises(InputError, match=f"mine: .*{message}"):
        read(source(saved / "dict", **changes), tmp_path)


def test_refuses_damaged_data_sets(tmp_path):
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved")
    (data,) = (tmp_path / "saved").glob("*.arrow")
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(InputError, match=r"mine: .*saved must be a sound data set, got"):
        read(source(tmp_path / "saved"), tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"mine: .*empty must be a sound data set, got"):
        read(source(tmp_path / "empty"), tmp_path)


class FakeHub:
    """Stream rows; break off after `breaks` of them, once."""

    def __init__(self, monkeypatch, breaks=None):
        self.asked, self.served, self.breaks = [], 0, breaks
        monkeypatch.setattr(hub, "_streamed", self.stream)
        monkeypatch.setattr(hub, "_revision", lambda source, cache: "c0ffee")

    def stream(self, source, revision, skip, cache):
        self.asked.append((revision, skip))
        for number, row in enumerate(ROWS[skip:]):
            if number == self.breaks:
                self.breaks = None
                raise ConnectionError("the network is down")
            self.served += 1
            yield row


def test_a_stream_is_kept_and_says_its_revision(tmp_path, monkeypatch):
    fake = FakeHub(monkeypatch)
    given = source("owner/set", max_documents=20)
    opened = hub.opened(given, tmp_path)
    assert opened.package == "owner/set c0ffee"
    assert set(opened.file) == {"file", "sha256"}
    assert [text for _, text in read(given, tmp_path)[0]] == wanted(ROWS[:20])
    assert fake.asked == [("c0ffee", 0)]
    assert fake.served == 20  # a filter that finds no more would make it fetch on
    read(source("owner/set", max_documents=21), tmp_path)
    assert len(fake.asked) == 2


@pytest.mark.parametrize("torn", [False, True])
def test_a_stream_that_breaks_off_goes_on_where_it_was(tmp_path, monkeypatch, torn):
    given = source("owner/set", filters={"set": "b"}, max_documents=25, max_read_megabytes=1.0)
    FakeHub(monkeypatch)
    whole = hub.opened(given, tmp_path / "whole")
    fake = FakeHub(monkeypatch, breaks=50)
    with pytest.raises(InputError, match=r"owner/set could not .* network is down.*what came is"):
        hub.opened(given, tmp_path / "cache")
    (part,) = (tmp_path / "cache").rglob("*.part")
    if torn:
        os.truncate(part, part.stat().st_size - 3)
    assert hub.opened(given, tmp_path / "cache").file == whole.file
    assert fake.asked == [("c0ffee", 0), ("c0ffee", 46 if torn else 49)]
    assert not list((tmp_path / "cache").rglob("*.part"))


def test_a_budget_reached_before_the_break_holds(tmp_path, monkeypatch):
    """What was kept counts: nothing is fetched twice, nor more than the budget."""
    given = source("owner/set", max_read_megabytes=400e-6)
    FakeHub(monkeypatch)
    whole = read(given, tmp_path / "whole")[0]
    FakeHub(monkeypatch, breaks=40)
    with pytest.raises(InputError):
        hub.opened(given, tmp_path / "cache")
    assert read(given, tmp_path / "cache")[0] == whole
    assert sum(len(text) for _, text in whole) <= 400


def test_without_a_network_it_says_so(tmp_path):
    """In a process of its own: whether there is a network is settled at import."""
    code = f"""
import sys
from pathlib import Path
from bam_lab.data.sources import hub
from bam_lab.errors import InputError
from bam_lab.spec.sources import HubSource
source = HubSource(kind="huggingface", name="mine", dataset="owner/set", licence="x",
                   max_megabytes=1.0, max_documents=3)
try:
    hub.opened(source, Path({str(tmp_path)!r}))
except InputError as error:
    print(error)
"""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert "mine: owner/set could not be read from the Hugging Face hub (OfflineMode" in done.stdout
    assert "Run `bam-lab prepare` where there is a network" in done.stdout
    assert not (tmp_path / "home").exists()


def test_names_the_package_that_it_lacks(saved, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"needs datasets. Run: pip install 'bam-lab\[hub\]'"):
        read(source(saved / "dict"), tmp_path)


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "jsonl.zst", "parquet"])
def test_named_files_of_a_data_set_whose_loading_script_is_refused(tmp_path, ending):
    folder = tmp_path / "set"
    (folder / "math").mkdir(parents=True)
    (folder / "set.py").write_text("raise SystemExit")
    path = folder / "math" / f"a.{ending}"
    text = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    if ending == "parquet":
        datasets.Dataset.from_list(ROWS).to_parquet(path)
    else:
        pack = {"jsonl": bytes, "jsonl.gz": gzip.compress, "jsonl.zst": zstandard.compress}
        path.write_bytes(pack[ending](text))
    (folder / "math" / "b.txt").write_text("not asked for")
    found, _ = read(source(folder, files=f"math/*.{ending}", max_documents=3), tmp_path)
    assert [text for _, text in found] == wanted(ROWS[:3])


def test_named_files_are_asked_for_at_their_revision(tmp_path, monkeypatch):
    asked = {}

    class Library:
        @staticmethod
        def load_dataset(kind, **options):
            asked.update(options, kind=kind)
            return iter(ROWS)

    monkeypatch.setattr(hub, "_library", lambda *_: Library)
    monkeypatch.setattr(hub, "_revision", lambda *_: "abc")
    found, _ = read(source("some/set", files="a/*.jsonl.zst", max_documents=2), tmp_path)
    assert [text for _, text in found] == wanted(ROWS[:2])
    assert asked["kind"] == "json"
    assert asked["data_files"] == {"train": "hf://datasets/some/set@abc/a/*.jsonl.zst"}
