"""The way from an error to a message and an exit code; unknown words; the version."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bam_lab import __version__
from bam_lab.cli import main as cli
from bam_lab.errors import InputError, SpecError, StageError
from tests.cli.command import bam_lab


def test_version_and_help():
    assert bam_lab("--version").out == f"bam-lab {__version__}\n"
    shown = bam_lab("--help").out
    for verb in ("list", "check", "plan", "run", "runs", "doctor"):
        assert f" {verb} " in shown


def test_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "bam_lab", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"bam-lab {__version__}\n"


def test_an_encoding_without_our_signs_is_no_failure():
    done = subprocess.run(
        [sys.executable, "-m", "bam_lab", "list"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "40"},
    )
    assert done.returncode == 0, done.stderr
    assert b"bam-" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_output_that_cannot_be_written_is_told():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "bam_lab", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: the output cannot be written: the disk is full.")


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (SpecError(["a.yaml:1:2: x must be 1", "b.yaml: [bold] y"]), 2, 3),
        (InputError("the disk is full"), 2, 1),
        (StageError("the loss is NaN"), 1, 1),
    ],
)
def test_errors_become_messages_and_codes(error, code, lines, monkeypatch):
    def fail():
        raise error

    monkeypatch.setattr(cli, "app", fail)
    done = bam_lab()
    assert done.code == code
    assert done.err.startswith("error: ")
    assert all(line in done.err for line in str(error).splitlines())
    assert len(done.err.splitlines()) == lines


def test_a_missing_extra_says_how_to_get_it(monkeypatch):
    def fail():
        raise ModuleNotFoundError("No module named 'torch'", name="torch.nn")

    monkeypatch.setattr(cli, "app", fail)
    done = bam_lab()
    assert done.code == 2
    assert "pip install 'bam-lab[train]'" in done.err


def test_our_own_defects_keep_their_traceback(monkeypatch):
    def fail():
        raise ModuleNotFoundError("No module named 'nonsense'", name="nonsense")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(ModuleNotFoundError, match="nonsense"):
        bam_lab()


@pytest.mark.parametrize("verb", ["plan", "run", "report", "reproduce"])
def test_an_unknown_id_gets_the_nearest(verb):
    done = bam_lab(verb, "bam-atention-routing")
    assert done.code == 2
    assert "Did you mean `bam-attention-routing`?" in done.err


def test_an_unknown_verb_and_a_bad_option_are_the_users():
    done = bam_lab("plam")
    assert done.code == 2
    assert "plan" in done.err
    assert bam_lab("plan", "bam-perplexity", "--replicates", "0").code == 2


def test_bad_overrides():
    done = bam_lab("plan", "bam-perplexity", "--set", "arms.kv-sharing.kv=sharde")
    assert done.code == 2
    assert "sharde" in done.err
    done = bam_lab("plan", "bam-perplexity", "--set", "match")
    assert done.code == 2
    assert "must be dotted.path=value" in done.err


@pytest.mark.parametrize("verb", ["run", "reproduce"])
@pytest.mark.parametrize("name", ["file/store", "x" * 300])
def test_a_store_that_cannot_be_written(verb, name, tmp_path):
    (tmp_path / "file").write_text("")
    done = bam_lab(verb, "bam-perplexity", "--store", str(tmp_path / name))
    assert done.code == 2
    assert "cannot be written" in done.err
    assert "--store" in done.err


def test_a_full_disk_is_said(monkeypatch):
    def fail():
        raise OSError(errno.ENOSPC, "No space left on device", "some/file")

    monkeypatch.setattr(cli, "app", fail)
    done = bam_lab()
    assert done.code == 2
    assert done.err.startswith("error: some/file cannot be written: the disk is full.")
