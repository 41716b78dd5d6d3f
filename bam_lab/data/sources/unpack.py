"""Read a packed file as a stream that never grows past what its size can honestly hold."""

import gzip
import io
from pathlib import Path
from typing import IO, Any

from bam_lab.errors import InputError

MOST_TIMES = 200
"""Text packs to a third, logs of one line to a hundredth; DEFLATE ends at 1/1032."""
ANY_RATIO_BYTES = 100_000_000
PACKED = (".gz", ".zst")


def stream(path: Path) -> io.BufferedReader:
    """Open a file to read what is in it, unpacked if its name ends in .gz or .zst.

    Reading raises OSError, EOFError or zlib.error where it is damaged or cut short.

    Raises:
        InputError: a package is missing; later, the stream unpacks to an absurd size.
    """
    if path.suffix.lower() not in PACKED:
        return path.open("rb")
    inner: Any = gzip.GzipFile(path) if path.suffix.lower() == ".gz" else zstandard(path, str(path))
    return io.BufferedReader(_Bounded(inner, path), 1 << 18)


def zstandard(name: object, packed: str | IO[bytes]) -> IO[bytes]:
    """Open a zstandard stream, by path or as a file; `name` is what errors call it.

    Raises:
        InputError: pyarrow is missing.
    """
    try:
        import pyarrow  # its reader tells a stream that was cut short; python-zstandard's does not
    except ModuleNotFoundError:
        raise InputError(
            f"{name}: reading .zst needs pyarrow. Run: pip install 'bam-lab[data]'"
        ) from None
    found: IO[bytes] = pyarrow.CompressedInputStream(packed, "zstd")
    return found


class _Bounded(io.RawIOBase):
    """Pass a stream on, and stop it when it unpacks to an absurd size."""

    def __init__(self, inner: Any, path: Path):
        """Read from `inner`, which unpacks `path`."""
        super().__init__()
        self._inner, self._path = inner, path
        self._most = max(ANY_RATIO_BYTES, MOST_TIMES * path.stat().st_size)
        self._read = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as there is something."""
        count = int(self._inner.readinto(buffer))
        self._read += count
        if self._read > self._most:
            raise InputError(
                f"{self._path}: must unpack to at most {MOST_TIMES} times its size, got more than "
                f"{self._most / 1e6:.0f} MB. Unpack it by hand if it is no trap."
            )
        return count

    def close(self) -> None:
        """Close what is read from."""
        if not self.closed:
            self._inner.close()
        super().close()
