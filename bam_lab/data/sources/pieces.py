"""What reading goes by: a source's pieces, and the count of what could not be read."""

from dataclasses import dataclass, field

EXAMPLES = 5
PIECE_BYTES = 32_000_000
"""About what one piece holds."""
LONGEST = 16_000_000
"""Bytes of a document, or of the line or row that holds it; longer ones are broken entries."""
_BROKEN_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Piece:
    """Name a part of a source that one process reads.

    Attributes:
        path: the file it lies in; empty where there is none (generators).
        start: first byte (row group, row) of it.
        stop: the one after its last; None for the end of the file.
        line: number of the line or row that `start` stands at the beginning of, counted from 1.
        more: small files that are read whole after it.
    """

    path: str = ""
    start: int = 0
    stop: int | None = None
    line: int = 1
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opened:
    """Hold a source ready to read.

    Attributes:
        package: what it was read from, with its version; None for local files.
        file: name and sha256 of the released file; empty for others.
        notes: what was left out without being asked (files of other kinds).
    """

    pieces: tuple[Piece, ...]
    package: str | None = None
    file: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass
class Tally:
    """Count what a reader met that was no document; tallies of pieces are added up.

    Attributes:
        entries: lines, rows or files that were met.
        broken: those of them that could not be read.
        controls: documents that control characters were taken out of.
        examples: place and reason of the first `EXAMPLES` of them.
        notes: what was done without being asked (an encoding that was detected).
    """

    entries: int = 0
    broken: int = 0
    controls: int = 0
    examples: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def reject(self, place: str, reason: str) -> None:
        """Count one entry that could not be read."""
        self.broken += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{place}: {reason}")

    def note(self, text: str) -> None:
        """Keep one of the first `EXAMPLES` notes."""
        if len(self.notes) < EXAMPLES:
            self.notes.append(text)

    def too_broken(self, source: str) -> str | None:
        """Return why a source has too many broken entries, if it has."""
        if self.broken <= _BROKEN_SHARE * self.entries:
            return None
        examples = "".join(f"\n  {example}" for example in self.examples)
        return (
            f"{source}: at most {_BROKEN_SHARE:.0%} of the entries may be broken, got "
            f"{self.broken:,} of {self.entries:,}. Mend these and others:{examples}"
        )

    def add(self, other: "Tally") -> None:
        """Add what another piece met, which stands later in the source."""
        self.entries += other.entries
        self.broken += other.broken
        self.controls += other.controls
        self.examples = (self.examples + other.examples)[:EXAMPLES]
        self.notes = (self.notes + other.notes)[:EXAMPLES]
