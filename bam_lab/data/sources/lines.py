"""Read JSON lines: a document a line, cut at line ends for several processes, streamed."""

import codecs
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from bam_lab.data.sources.decode import marked
from bam_lab.data.sources.pieces import LONGEST, PIECE_BYTES, Piece, Tally
from bam_lab.data.sources.unpack import PACKED, stream
from bam_lab.errors import InputError

_CHUNK = 1 << 20


def cut(path: Path, encoding: str | None, size: int = PIECE_BYTES) -> list[Piece]:
    """Cut a file at the first line end after every `size` bytes; packed ones stay whole."""
    pieces: list[Piece] = []
    start, line, position, lines = 0, 1, 0, 1
    with path.open("rb") as file:
        if path.suffix.lower() in PACKED or _wide(file.read(4), encoding):
            return [Piece(str(path))]
        file.seek(0)
        while chunk := file.read(_CHUNK):
            while (end := chunk.find(b"\n", max(0, start + size - 1 - position)) + 1) > 0:
                lines += chunk.count(b"\n", 0, end)
                position += end
                pieces.append(Piece(str(path), start, position, line))
                start, line, chunk = position, lines, chunk[end:]
            lines += chunk.count(b"\n")
            position += len(chunk)
    return [*pieces, Piece(str(path), start, position, line)] if position > start else pieces


def documents(
    piece: Piece, name: str, field: str, encoding: str | None, tally: Tally
) -> Iterator[tuple[str, str]]:
    """Yield (name#line, text) of every line that can be read, and tally the others.

    Raises:
        InputError: the file is damaged, cut short, a trap, or not in the named encoding.
    """
    path = Path(piece.path)
    try:
        with closing(_opened(path, piece.start, encoding)) as file:
            for number, line, length in _lines(file, piece):
                if line is None:
                    tally.entries += 1
                    tally.reject(
                        f"{name}:{number}",
                        f"must have at most {LONGEST / 1e6:.0f} MB, got {length / 1e6:.0f} MB",
                    )
                elif line and not line.isspace():
                    tally.entries += 1
                    try:
                        yield f"{name}#{number}", _text(line, field)
                    except ValueError as error:
                        tally.reject(f"{name}:{number}", str(error))
    except (OSError, EOFError, zlib.error, UnicodeError) as error:
        told = getattr(error, "strerror", None) or error
        raise InputError(
            f"{path}: must be a whole and sound file, got: {told}. Get it anew, or remove it."
        ) from None


def _lines(file: io.BufferedReader, piece: Piece) -> Iterator[tuple[int, bytes | None, int]]:
    """Yield number, line (None for one that is too long), and length in bytes."""
    position, number = piece.start, piece.line
    while piece.stop is None or position < piece.stop:
        line: bytes | None = file.readline(LONGEST + 1)
        if not line:
            return
        length = len(line)
        if position == 0:
            line = line.removeprefix(codecs.BOM_UTF8)
        if length > LONGEST:
            last, line = line[-1:], None
            while last != b"\n" and (rest := file.readline(_CHUNK)):
                length += len(rest)
                last = rest[-1:]
        yield number, line, length
        position += length
        number += 1


def _text(line: bytes, field: str) -> str:
    """Return the text of one line, or raise a ValueError that says what is wrong with it."""
    try:
        row = json.loads(line.decode())
    except UnicodeDecodeError:
        raise ValueError("must be UTF-8, or what the source's encoding names") from None
    except RecursionError:
        raise ValueError("must be a JSON object, got one nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"must be a JSON object, got {_shown(line)} ({error.msg})") from None
    except ValueError:  # an integer of more digits than Python takes
        raise ValueError(f"must be a JSON object, got {_shown(line)}") from None
    text = text_of(row, field)
    if b"\\u" in line:  # JSON can spell half a surrogate pair, which no text file can hold
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{field!r} must hold text, got half of a surrogate pair") from None
    return text


def text_of(row: Any, field: str) -> str:
    """Return a row's text; a dot in the field leads into a nested object.

    Raises:
        ValueError: it has no such field, or no text in it.
    """
    value = value_of(row, field)
    if not isinstance(value, str):
        raise ValueError(f"{field!r} must hold text, got {type(value).__name__}")
    return value


def value_of(row: Any, field: str) -> Any:
    """Return what stands in a field; a dot leads into a nested object.

    Raises:
        ValueError: there is no such field; names those that there are.
    """
    if not isinstance(row, dict):
        raise ValueError(f"must be a JSON object, got {_shown(json.dumps(row).encode())}")
    if field in row:
        return row[field]
    first, dot, rest = field.partition(".")
    if dot and isinstance(row.get(first), dict):
        return value_of(row[first], rest)
    there = ", ".join(map(repr, list(row)[:12])) or "none"
    raise ValueError(f"must have the field {field!r}, has {there}")


def _shown(line: bytes) -> str:
    return repr(line[:60].decode(errors="replace").strip())


def _opened(path: Path, start: int, encoding: str | None) -> io.BufferedReader:
    """Open at a byte, as UTF-8."""
    file = stream(path)
    if start:
        file.seek(start)
    elif wide := _wide(file.peek(4)[:4], encoding):
        return io.BufferedReader(_Recoded(file, wide), _CHUNK)
    return file


def _wide(head: bytes, encoding: str | None) -> str | None:
    """Return the encoding if it is another than UTF-8."""
    name = encoding or marked(head) or "utf-8"
    return None if codecs.lookup(name).name in ("utf-8", "utf-8-sig", "ascii") else name


class _Recoded(io.RawIOBase):
    """Read text of another encoding as UTF-8."""

    def __init__(self, file: io.BufferedReader, encoding: str):
        """Read from `file`."""
        super().__init__()
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._left = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as there is something."""
        while not self._left:
            chunk = self._file.read(_CHUNK)
            self._left = self._decoder.decode(chunk, final=not chunk).encode()
            if not chunk:
                break
        part = self._left[: len(buffer)]
        buffer[: len(part)] = part
        self._left = self._left[len(part) :]
        return len(part)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()
