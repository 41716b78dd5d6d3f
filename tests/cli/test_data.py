"""`bam-lab data`: build once, show, and what is said when it cannot."""

import json
from pathlib import Path

from tests.cli.command import bam_lab

FIXTURE = str(Path(__file__).parents[1] / "fixtures" / "corpus.yaml")


def test_builds_once_and_shows(tmp_path):
    store = ("--store", str(tmp_path))
    first = bam_lab("data", "build", FIXTURE, "--quiet", *store)
    assert first.code == 0
    assert "stands in for Common Crawl" in first.out
    assert "CC0-1.0" in first.out
    (stage,) = (tmp_path / "stages").iterdir()
    assert (stage / "DONE").is_file()
    before = {path.name: path.stat().st_mtime_ns for path in stage.iterdir()}
    assert bam_lab("data", "build", FIXTURE, "--quiet", *store).out == first.out
    assert {path.name: path.stat().st_mtime_ns for path in stage.iterdir()} == before
    assert bam_lab("data", "show", FIXTURE, *store).out == first.out
    manifest = json.loads(bam_lab("data", "show", FIXTURE, "--json", *store).out)
    assert set(manifest["domains"]) == {"code", "general", "law", "math"}


def test_a_corpus_that_is_not_built_is_said(tmp_path):
    done = bam_lab("data", "show", FIXTURE, "--store", str(tmp_path))
    assert done.code == 2
    assert f"Build it: bam-lab data build {FIXTURE}" in done.err


def test_an_unknown_name_gets_the_nearest(tmp_path):
    done = bam_lab("data", "build", "defualt", "--store", str(tmp_path))
    assert done.code == 2
    assert "Did you mean `default`?" in done.err


def test_a_folder_is_no_spec_and_nothing_is_said_of_writing(tmp_path):
    done = bam_lab("data", "build", f"{tmp_path}/", "--store", str(tmp_path / "store"))
    assert done.code == 2
    assert "must be readable, got: is a directory" in done.err


def test_too_little_text_is_the_users_to_mend(tmp_path):
    text = Path(FIXTURE).read_text().replace("folder: corpus", f"folder: {tmp_path}/text")
    (tmp_path / "text").mkdir()
    for path in (Path(FIXTURE).parent / "corpus").iterdir():
        (tmp_path / "text" / path.name).write_bytes(path.read_bytes())
    own = tmp_path / "own.yaml"
    own.write_text(text.replace("min_megabytes: 0.008", "min_megabytes: 0.5", 1))
    done = bam_lab("data", "build", str(own), "--quiet", "--store", str(tmp_path / "store"))
    assert done.code == 2
    assert "domains.general must hold at least 0.5 MB" in done.err
    assert list((tmp_path / "store" / "stages").iterdir()) == []


def test_a_missing_file_and_an_empty_one_are_said_before_anything_is_built(tmp_path):
    text = Path(FIXTURE).read_text()
    own = tmp_path / "own.yaml"
    own.write_text(text)  # beside no folder `corpus`
    store = tmp_path / "store"
    done = bam_lab("data", "build", str(own), "--store", str(store))
    assert done.code == 2
    assert "folder must exist" in done.err
    own.write_text("")
    assert "must not be empty" in bam_lab("data", "build", str(own), "--store", str(store)).err
    assert list((store / "stages").glob("*")) == []
