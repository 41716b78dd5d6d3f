"""Write files so that a reader never sees half of one."""

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bam_lab.errors import CheckpointError, InputError, SpecError

_AGAIN = "Free some space and run the same command again"
_ELSEWHERE = "Choose another folder with {option}"
_MENDABLE = {
    errno.ENOSPC: f"the disk is full. {_AGAIN}",
    errno.EDQUOT: f"the disk quota is used up. {_AGAIN}",
    errno.EACCES: f"permission denied. {_ELSEWHERE}",
    errno.EPERM: f"permission denied. {_ELSEWHERE}",
    errno.ENAMETOOLONG: f"its name is too long. {_ELSEWHERE}",
    errno.EROFS: f"the file system is read-only. {_ELSEWHERE}",
    errno.ELOOP: f"a symbolic link leads back to itself. {_ELSEWHERE}",
    errno.EISDIR: "a folder is where a file should be. Delete it, or choose another folder",
    errno.ENOTDIR: f"a file is where a folder should be. {_ELSEWHERE}",
    errno.EEXIST: f"a file is where a folder should be. {_ELSEWHERE}",
}


@contextlib.contextmanager
def explained(path: Path, option: str = "--store", what: str = "written") -> Iterator[None]:
    """Turn the disk errors that a user can mend into an `InputError` that names `path`.

    Args:
        path: what is written, where the error does not say.
        option: what says another place for it.
        what: what cannot be done; where the disk is full, writing.
    """
    try:
        yield
    except (InputError, SpecError):  # has its own words, whatever the disk said before it
        raise
    except Exception as error:
        number, file = _disk_error(error)
        if number not in _MENDABLE:
            raise
        why = _MENDABLE[number].format(option=option)
        what = "written" if number in (errno.ENOSPC, errno.EDQUOT) else what
        raise InputError(f"{file or path} cannot be {what}: {why}.") from error


def _disk_error(error: BaseException) -> tuple[int, str]:
    """Return the error number and the file of the disk's refusal behind an error; 0 for none.

    torch's archive writer raises a RuntimeError while it handles the disk's own, and safetensors
    writes the number into its text.
    """
    if isinstance(error, OSError):
        return error.errno or 0, str(error.filename2 or error.filename or "")  # a rename's target
    if isinstance(error.__context__, OSError):
        return _disk_error(error.__context__)
    told = re.search(r"\(os error (\d+)\)", str(error))
    return (int(told[1]), "") if told else (0, "")


@contextlib.contextmanager
def intact(path: Path) -> Iterator[None]:
    """Turn what reading a damaged file or stage folder of the store raises into an `InputError`.

    Files are published whole and flushed, so damage comes from outside: a disk, a copy cut short,
    an editor. A missing file counts where `path` is the folder that should hold it.
    """
    try:
        yield
    except (
        FileNotFoundError, KeyError, TypeError, ValueError, CheckpointError, RecursionError,
    ) as error:  # fmt: skip
        if isinstance(error, FileNotFoundError) and not path.is_dir():
            raise
        raise InputError(
            f"{path} is damaged ({type(error).__name__}: {error}). Delete it and run the ablation "
            "again: only what is missing is done anew."
        ) from error


def make_folder(path: Path, option: str = "--store") -> Path:
    """Create a folder and its parents; return it. `option` as in `explained`."""
    try:
        with explained(path, option):
            path.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError:  # a file system that makes no folders, such as /proc
        raise InputError(
            f"{path} cannot be written: no folder can be made there. "
            f"Choose another folder with {option}."
        ) from None
    return path


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    """Replace a file at once: temporary file, fsync, rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with explained(path):
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file at once."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def sync_folder(path: Path) -> None:
    """Flush a folder's own entries to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """Flush every file and folder below `path` to disk."""
    for folder, _, names in os.walk(path):
        for name in names:
            descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(Path(folder))
