"""What local files are: a hash that sees every edit, and is not taken twice of big ones."""

import json
import os

import pytest

from bam_lab.data.sources import hashes, local
from bam_lab.spec.sources import FilesSource, HubSource


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """Hash every file as if it were big and long settled; return which were really read."""
    seen = []
    real = hashes.sha256
    monkeypatch.setattr(hashes, "sha256", lambda path: seen.append(path.name) or real(path))
    monkeypatch.setattr(hashes, "BIG", 0)
    monkeypatch.setattr(hashes, "_SETTLED_NS", -(10**18))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return seen


def files(folder):
    return FilesSource(
        kind="files", name="mine", folder=str(folder), pattern="*", licence="", max_megabytes=1.0
    )


def test_names_and_contents_count_and_the_place_does_not(tmp_path):
    folder, other = tmp_path / "one", tmp_path / "other"
    for place in (folder, other):
        place.mkdir()
        (place / "a.txt").write_text("one")
    first = local.digest(files(folder))
    assert local.digest(files(other)) == first
    (folder / "a.txt").write_text("two")
    second = local.digest(files(folder))
    (folder / "a.txt").rename(folder / "b.txt")
    assert len({first, second, local.digest(files(folder))}) == 3


def test_a_big_file_is_hashed_once_until_it_changes(tmp_path, counted):
    path = tmp_path / "a.txt"
    path.write_text("one")
    first = hashes.content_hash(path)
    assert hashes.content_hash(path) == first
    assert counted == ["a.txt"]
    told = path.stat()
    path.write_text("two")
    os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))  # as some copying tools do
    assert path.stat().st_mtime_ns == told.st_mtime_ns
    assert hashes.content_hash(path) != first
    assert counted == ["a.txt", "a.txt"]


def test_a_file_that_may_still_change_is_not_remembered(tmp_path, counted, monkeypatch):
    monkeypatch.setattr(hashes, "_SETTLED_NS", 2 * 10**9)
    path = tmp_path / "a.txt"
    path.write_text("one")
    assert hashes.content_hash(path) == hashes.content_hash(path)
    assert len(counted) == 2


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"state": 3}'])
def test_a_damaged_memory_counts_as_none(tmp_path, counted, content):
    path = tmp_path / "a.txt"
    path.write_text("one")
    first = hashes.content_hash(path)
    (memory,) = (tmp_path / "cache" / "bam-lab" / "hashes").iterdir()
    assert json.loads(memory.read_text())["sha256"] == first.hex()
    memory.write_text(content)
    assert hashes.content_hash(path) == first
    assert len(counted) == 2


def test_a_home_that_takes_nothing_costs_only_time(tmp_path, counted, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    path = tmp_path / "a.txt"
    path.write_text("one")
    assert hashes.content_hash(path) == hashes.content_hash(path)
    assert len(counted) == 2


def test_data_sets_on_disk_and_evaluation_items_count(tmp_path, corpus_spec):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "data.arrow").write_text("one")
    hub = HubSource(
        kind="huggingface", name="saved", dataset=str(tmp_path / "saved"), licence="",
        max_megabytes=1.0,
    )  # fmt: skip
    spec = corpus_spec.model_copy(update={"evaluation": (hub,)})
    first = local.inputs_digest(spec)
    assert first != local.inputs_digest(corpus_spec)
    (tmp_path / "saved" / "data.arrow").write_text("two")
    assert local.inputs_digest(spec) != first
