"""Fetch Debian packages without installing them or being root.

`apt-get download` does it, with the sources and proxies that the machine has; it holds the file
against the signed package lists itself. What apt offers changes with point releases: a source
without a version takes what is offered now, and keeps it.
"""

import os
from pathlib import Path

from bam_lab.data.sources import downloads
from bam_lab.errors import InputError
from bam_lab.spec.sources import DebianSource


def fetch(source: DebianSource, cache: Path) -> Path:
    """Return the source's .deb file, downloaded if the cache lacks it.

    Raises:
        InputError: it cannot be had (a machine without apt, no lists, no network), or is not the
            file that the spec expects.
    """
    version = (source.version or "offered").replace(":", "%3a")
    name = f"debian/{source.package}-{version}"
    return downloads.fetch(cache, name, source.sha256, lambda folder: _download(source, folder))


def _download(source: DebianSource, folder: Path) -> None:
    package = source.package + (f"={source.version}" if source.version else "")
    command = ["apt-get", "download", "-qq", "-o", "Acquire::Retries=3", package]
    try:
        wrong = downloads.run(command, folder, {**os.environ, "LC_ALL": "C.UTF-8"})
    except (FileNotFoundError, PermissionError):
        raise InputError(
            f"{source.name} needs apt-get to download the Debian package {package}, and this "
            "machine has none. Leave the source out, or build on a Debian machine and copy the "
            "folder of downloads."
        ) from None
    if wrong is not None:
        raise InputError(
            f"{package} could not be downloaded from Debian: {wrong}. Check the network; where the "
            "package is not found, run `apt-get update` as root once, and then the same command "
            "again: what is already here is kept."
        )
