"""Arrays on disk: written at once, or a part at a time so that none lies in memory as a whole."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from bam_lab.record.files import explained, sha256


def save(path: Path, array: NDArray[Any]) -> None:
    """Write an array at once; a killed process leaves none under its name."""
    temporary = path.with_suffix(".part")
    with explained(path):
        with temporary.open("wb") as file:
            np.save(file, array)
        temporary.replace(path)


def digest(folder: Path) -> str:
    """Return a hash over the names and contents of a folder's arrays."""
    total = hashlib.sha256()
    for path in sorted(folder.glob("*.npy")):
        total.update(f"{path.name} {sha256(path)}\n".encode())
    return total.hexdigest()


class Growing:
    """Append to an open .npy file; `grown` makes one."""

    def __init__(self, file: BinaryIO, dtype: DTypeLike, width: int | None):
        """Start with no rows."""
        self.rows = 0
        self._file, self._dtype, self._width = file, np.dtype(dtype), width
        self.write_header()

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows at the end."""
        self._file.write(np.ascontiguousarray(rows, self._dtype).tobytes())
        self.rows += len(rows)

    def write_header(self) -> None:
        """Write the header; it takes as many bytes for any number of rows (numpy's own padding)."""
        shape = (self.rows,) if self._width is None else (self.rows, self._width)
        self._file.seek(0)
        npy.write_array_header_1_0(
            self._file,
            {"descr": npy.dtype_to_descr(self._dtype), "fortran_order": False, "shape": shape},
        )


@contextmanager
def grown(path: Path, dtype: DTypeLike, width: int | None = None) -> Iterator[Growing]:
    """Yield an array to append to; it stands under its name once it is whole.

    Args:
        path: the .npy file; its bytes are those that `np.save` would write.
        dtype: of its elements.
        width: length of a row; None where rows are single elements.
    """
    temporary = path.with_suffix(".part")
    with explained(path):
        with temporary.open("wb") as file:
            array = Growing(file, dtype, width)
            yield array
            array.write_header()
        temporary.replace(path)
