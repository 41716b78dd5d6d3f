"""The disk's refusal is told in the user's words, whichever library met it."""

import errno

import pytest
import torch
from safetensors.torch import save_file

from bam_lab.errors import InputError
from bam_lab.record.files import explained, intact, read_json

FULL = "resume.pt cannot be written: the disk is full"


def test_a_full_disk_under_torchs_archive_writer(tmp_path):
    """/dev/full refuses every write, as a full disk does."""
    with (
        pytest.raises(InputError, match=FULL),
        explained(tmp_path / "resume.pt"),
        open("/dev/full", "wb", buffering=0) as file,
    ):
        torch.save({"weights": torch.zeros(100_000)}, file)


def test_the_number_in_safetensors_text(tmp_path):
    gone = tmp_path / "no" / "folder"
    told = f"I/O error: No space left on device (os error {errno.ENOSPC})"
    with pytest.raises(InputError, match=FULL), explained(tmp_path / "resume.pt"):
        raise RuntimeError(told)
    with pytest.raises(Exception, match=r"\(os error \d+\)"):
        save_file({"weights": torch.zeros(2)}, gone / "model.safetensors")


def test_the_option_that_says_another_place_is_named():
    with (
        pytest.raises(InputError, match=r"x cannot be written or read: permission .* with --to\."),
        explained("x", "--to", "written or read"),
    ):
        raise PermissionError(errno.EACCES, "Permission denied")
    with pytest.raises(InputError, match=FULL), explained("resume.pt", what="written or read"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_json_that_is_nested_without_end_is_damage(tmp_path):
    (tmp_path / "index.json").write_text("[" * 100_000)
    with (
        pytest.raises(InputError, match=r"index\.json is damaged \(RecursionError"),
        intact(tmp_path / "index.json"),
    ):
        read_json(tmp_path / "index.json")


def test_other_errors_pass():
    with pytest.raises(ZeroDivisionError), explained("anything"):
        _ = 1 / 0
