"""`check`: every kind of file, every problem, exit code 2, never a traceback."""

from pathlib import Path

import pytest

from bam_lab.cli.kinds import problems_of
from tests.cli.command import bam_lab

GOOD = "ablations/bam/bam-attention-routing.yaml"


def test_shipped_files_are_fine():
    done = bam_lab("check")
    assert done.code == 0
    assert "files are fine" in done.out


def test_one_file_and_a_folder():
    assert "1 file is fine" in bam_lab("check", GOOD).out
    assert bam_lab("check", "configs", "ablations", GOOD).code == 0


def test_all_problems_of_all_files_at_once(tmp_path):
    first, second = tmp_path / "one.yaml", tmp_path / "two.yaml"
    first.write_text("schema: 1\nvocab_size: 10\ndim: x\nnum_layer: 2\n")
    second.write_text("schema: 1\nphases: 3\n")
    done = bam_lab("check", str(tmp_path))
    assert done.code == 2
    assert f"{first}:3:1: dim must be" in done.err
    assert "num_layers" in done.err
    assert f"{second}:2:1: phases must be a mapping" in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


BAD = {
    "empty": (b"", "must not be empty"),
    "binary": (b"\x00\xff\x00", "binary"),
    "list": (b"- a\n- b\n", "must hold a mapping, got a list"),
    "tag": (b"schema: !!python/object:os.system x\n", "tag"),
    "alias": (b"a: &x [1, 2]\nb: *x\n", "alias"),
    "duplicate": (b"schema: 1\nschema: 1\n", "duplicate key"),
    "syntax": (b"a: [1,\n", "valid YAML"),
    "unknown": (b"schema: 1\nfoo: 2\n", "must have a key that says what it is, got schema, foo"),
    "future": (b"schema: 2\nvocab_size: 10\n", "schema must be 1, got 2"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_bad_files(content, message, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    done = bam_lab("check", str(path))
    assert done.code == 2
    assert message in done.err
    assert str(path) in done.err
    assert "Traceback" not in done.err


def test_missing_file_and_folder_without_specs(tmp_path):
    assert "must be readable, got: no such file" in bam_lab("check", str(tmp_path / "x.yaml")).err
    done = bam_lab("check", str(tmp_path))
    assert done.code == 2
    assert "must hold .yaml files" in done.err


def test_an_ablation_is_checked_with_its_match(tmp_path):
    text = Path(GOOD).read_text().replace("top_k: 2", "top_k: 9")
    path = tmp_path / "bam-attention-routing.yaml"
    path.write_text(text)
    problems = problems_of(path)
    assert len(problems) == 2
    assert all("must be at most the number of experts 4, got 9" in text for text in problems)


def test_an_ablation_in_the_current_folder_needs_no_path(tmp_path, monkeypatch):
    path = tmp_path / "bam-attention-routing.yaml"
    path.write_text(Path(GOOD).read_text())
    monkeypatch.chdir(tmp_path)
    assert bam_lab("check", path.name).code == 0
