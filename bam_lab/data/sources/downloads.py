"""Keep released files of packages in a folder of downloads, so that each is fetched once.

A package's folder appears under its name only when its file is whole, so that a registry that goes
down half-way costs what is missing and no more. Nothing that is raised here names a folder of the
machine: it may end in a manifest.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bam_lab.errors import InputError
from bam_lab.record.files import explained, make_folder, sha256

_SECONDS = 1800.0


def fetch(cache: Path, name: str, digest: str | None, download: Callable[[Path], None]) -> Path:
    """Return the one file in `cache/name`, downloaded if the folder is not there.

    Args:
        cache: the folder of downloads.
        name: folder below it: registry, package and version.
        digest: SHA-256 that the file must have; None leaves it unchecked.
        download: puts the file into the empty folder that it is given, or raises.

    Raises:
        InputError: it cannot be had, or is not the file that the spec expects.
    """
    folder = cache / name
    if not folder.is_dir():
        _download(folder, name, download)
    files = _files(folder)
    if len(files) != 1:
        raise InputError(
            f"The download {name} must hold one file, got {len(files)}. "
            "Delete its folder to download it again."
        )
    if digest is not None and (got := sha256(files[0])) != digest:
        raise InputError(
            f"The download {name}/{files[0].name} must have the sha256 {digest}, got {got}. "
            "Delete it to download it again; if that gives the same, do not trust the package."
        )
    return files[0]


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str | None:
    """Run a registry's client in `folder`; return what went wrong, or None.

    Raises:
        FileNotFoundError: the machine has no such program.
    """
    try:
        result = subprocess.run(
            list(command),
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {_SECONDS / 60:.0f} minutes"
    return reason(result.stderr) if result.returncode else None


def reason(stderr: str) -> str:
    """Return the line that says why a client failed, without addresses and folders."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    # npm says what happened first, after codes; pip and apt say it last.
    npm = [
        re.sub(r"^npm (error|ERR!) ", "", line)
        for line in lines
        if re.match("npm (error|ERR!)", line)
    ]
    told = [line for line in npm if not re.match(r"(code|syscall|errno|path|dest) ", line)]
    marked = [line for line in lines if re.match(r"ERROR|E:", line)]
    said = told[0] if told else (marked or lines or ["nothing was said"])[-1]
    said = re.sub(r"^(ERROR: |E: |(network|notarget|\d{3}) )", "", said)
    said = re.sub(r"\b[a-z+]+://\S+", "its address", said)
    said = re.sub(r"\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b", "an address", said)
    said = re.sub(r"(host=|resolve |ENOTFOUND |EAI_AGAIN )'?[\w.:-]*\w'?", r"\1a host", said)
    said = re.sub(r"(?<![\w.@])/(?:[\w.+~-]+/)*[\w.+~-]+", "a folder", said)
    return said.rstrip(".")


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def _download(folder: Path, name: str, download: Callable[[Path], None]) -> None:
    """Download into a temporary folder beside `folder`, then rename: never half a download."""
    make_folder(folder.parent)
    with explained(folder.parent):
        temporary = Path(tempfile.mkdtemp(dir=folder.parent.resolve(), prefix=".download-"))
    try:
        download(temporary)
        if not _files(temporary):
            raise InputError(f"The download {name} must hold one file, got 0. Run it again.")
        with explained(folder):
            try:
                temporary.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another build was faster: its file is the same
                    raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
