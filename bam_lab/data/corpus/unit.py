"""What a build keeps on disk of each piece of a source, one folder a piece.

lines.jsonl       the piece's documents as the corpus will have them, one a line
index.npy         one `DOCUMENT` a document
NAME.npy          columns that a step adds: paragraphs, signatures, bands, runs ...
NAME.json         what a step counted; written last, so that it says that the step is done
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bam_lab.data.sources.pieces import Piece
from bam_lab.spec.sources import Source

DOCUMENT = np.dtype(
    [("split", "<u8"), ("order", "<u8"), ("start", "<i8"), ("size", "<i8"), ("bytes", "<i8")]
)
"""64 bits of the content hash that choose the split, 64 others that give the order; the line's
first byte and size in lines.jsonl; bytes of the text."""

LINES_BYTES = 16_000_000


@dataclass(frozen=True)
class Unit:
    """Name one piece of one source.

    Attributes:
        domain: the source's; None for a source of evaluation items.
        position: of the source in its domain.
        folder: what the build keeps of it.
    """

    domain: str | None
    position: int
    source: Source
    piece: Piece
    folder: Path

    def array(self, name: str) -> NDArray[Any]:
        """Read a column into memory."""
        column: NDArray[Any] = np.load(self.folder / f"{name}.npy")
        return column

    def texts(self, wanted: Sequence[int] | NDArray[np.int64]) -> Iterator[str]:
        """Yield the texts of documents, given by ascending number within the piece."""
        rows = self.array("index")[wanted]
        with (self.folder / "lines.jsonl").open("rb") as file:
            for row in rows:
                file.seek(int(row["start"]))
                yield json.loads(file.read(int(row["size"])))["text"]


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    """Yield the documents of a file that `Lines` wrote."""
    with path.open("rb") as file:
        for line in file:
            yield json.loads(line)


class Lines:
    """Write documents one a line, and note where each stands."""

    def __init__(self, file: BinaryIO):
        """Write to an open file."""
        self._file = file
        self._position = 0

    def write(self, id: str, source: str, text: str) -> tuple[int, int]:
        """Write one document; return the line's first byte and its size."""
        row = {"id": id, "source": source, "text": text}
        line = json.dumps(row, ensure_ascii=False).encode() + b"\n"
        self._file.write(line)
        start = self._position
        self._position += len(line)
        return start, len(line)


class Documents:
    """Number the documents of several units one after the other, and give what is known of them."""

    def __init__(self, units: Sequence[Unit]):
        """Take the units in order."""
        self.units = units
        counts = [len(np.load(unit.folder / "index.npy", mmap_mode="r")) for unit in units]
        self.starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def __len__(self) -> int:
        """Return the number of documents."""
        return int(self.starts[-1])

    def part(self, place: int) -> slice:
        """Return the numbers of one unit's documents."""
        return slice(int(self.starts[place]), int(self.starts[place + 1]))

    def field(self, name: str) -> NDArray[Any]:
        """Return one field of `DOCUMENT` of every document."""
        found = np.empty(len(self), DOCUMENT[name])
        for place, unit in enumerate(self.units):
            found[self.part(place)] = unit.array("index")[name]
        return found

    def positions(self) -> NDArray[np.int32]:
        """Return the position of every document's source in its domain."""
        counts = np.diff(self.starts)
        return np.repeat(np.array([unit.position for unit in self.units], np.int32), counts)

    def band(self, number: int) -> NDArray[np.uint64]:
        """Return one band's hash of every document."""
        found = np.empty(len(self), np.uint64)
        for place, unit in enumerate(self.units):
            bands = np.load(unit.folder / "bands.npy", mmap_mode="r")
            found[self.part(place)] = bands[:, number]
        return found

    def signatures(self, wanted: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return the signatures of documents, in any order."""
        found = np.zeros((len(wanted), 0), np.uint32)
        for place, mine, local in self._by_unit(wanted):
            rows = np.load(self.units[place].folder / "signatures.npy", mmap_mode="r")
            if not found.shape[1]:
                found = np.zeros((len(wanted), rows.shape[1]), np.uint32)
            found[mine] = rows[local]
        return found

    def lines(self, wanted: NDArray[np.int64], sizes: NDArray[np.int64]) -> Iterator[bytes]:
        """Yield the lines of documents in the order given, about `LINES_BYTES` at a time.

        Args:
            wanted: their numbers.
            sizes: bytes of every document's line.
        """
        share = np.cumsum(sizes[wanted]) // LINES_BYTES
        for together in np.split(wanted, np.flatnonzero(np.diff(share)) + 1):
            found = [b""] * len(together)
            for place, mine, local in self._by_unit(together):
                unit = self.units[place]
                rows = np.load(unit.folder / "index.npy", mmap_mode="r")[local]
                with (unit.folder / "lines.jsonl").open("rb") as file:
                    for position, row in zip(mine.tolist(), rows, strict=True):
                        found[position] = os.pread(file.fileno(), row["size"], row["start"])
            yield b"".join(found)

    def _by_unit(
        self, wanted: NDArray[np.int64]
    ) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield (unit, places in `wanted`, numbers within the unit) of the units that are met."""
        unit_of = np.searchsorted(self.starts, wanted, side="right") - 1
        order = np.argsort(unit_of, kind="stable")
        met, first = np.unique(unit_of[order], return_index=True)
        parts = np.split(order, first[1:]) if len(order) else []  # of nothing, one part
        for place, mine in zip(met.tolist(), parts, strict=True):
            yield place, mine, wanted[mine] - self.starts[place]
