"""Read parquet: a document a row, cut by row groups, a few MB in memory at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bam_lab.data.sources.pieces import LONGEST, PIECE_BYTES, Piece, Tally
from bam_lab.data.sources.unpack import ANY_RATIO_BYTES, MOST_TIMES
from bam_lab.errors import InputError

_BATCH_BYTES = 4_000_000


def cut(path: Path, field: str, size: int = PIECE_BYTES) -> list[Piece]:
    """Cut a file into runs of row groups of about `size` bytes.

    Raises:
        InputError: it is no parquet file, has no such column of strings, or is a trap.
    """
    with _opened(path, field) as file:
        pieces: list[Piece] = []
        start, line, rows, held = 0, 1, 0, 0
        leaf = _leaf(file, field)
        for group in range(file.metadata.num_row_groups):
            told = file.metadata.row_group(group)
            chunk = told.column(leaf)
            unpacked = chunk.total_uncompressed_size
            if unpacked > max(ANY_RATIO_BYTES, MOST_TIMES * chunk.total_compressed_size):
                raise InputError(
                    f"{path}: must unpack to at most {MOST_TIMES} times its size, got "
                    f"{unpacked / 1e6:.0f} MB in row group {group}. Leave it out."
                )
            rows, held = rows + told.num_rows, held + unpacked
            if held >= size or group == file.metadata.num_row_groups - 1:
                pieces.append(Piece(str(path), start, group + 1, line))
                start, line, rows, held = group + 1, line + rows, 0, 0
    return pieces


def documents(piece: Piece, name: str, field: str, tally: Tally) -> Iterator[tuple[str, str]]:
    """Yield (name#row, text) of every row that can be read, and tally the others.

    Raises:
        InputError: the file is damaged, or changed since it was cut.
    """
    path, number = Path(piece.path), piece.line
    with _opened(path, field) as file:
        stop = file.metadata.num_row_groups if piece.stop is None else piece.stop
        groups = list(range(piece.start, stop))
        held = sum(file.metadata.row_group(group).total_byte_size for group in groups)
        rows = sum(file.metadata.row_group(group).num_rows for group in groups)
        batch = max(1, min(1024, _BATCH_BYTES * rows // max(held, 1)))
        for found in file.iter_batches(batch, row_groups=groups, columns=[field]):
            for value in found.column(0):
                tally.entries += 1
                try:
                    yield f"{name}#{number}", _text(value.as_py())
                except ValueError as error:
                    tally.reject(f"{name}:{number}", f"{field!r} {error}")
                number += 1


def _text(value: Any) -> str:
    if value is None:
        raise ValueError("must hold text, got nothing")
    if len(value) > LONGEST:
        raise ValueError(f"must have at most {LONGEST / 1e6:.0f} MB, got {len(value) / 1e6:.0f} MB")
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ValueError("must hold UTF-8 text") from None
    return str(value)


def _leaf(file: Any, field: str) -> int:
    """Return the number of the field among the file's columns, where nested ones count by part."""
    schema = file.metadata.schema
    return next(i for i in range(len(schema)) if schema.column(i).path == field)


@contextmanager
def _opened(path: Path, field: str) -> Iterator[Any]:
    """Open a file that has such a column of strings."""
    try:
        import pyarrow  # in the extra `data`
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise InputError(
            f"{path}: reading .parquet needs pyarrow. Run: pip install 'bam-lab[data]'"
        ) from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            _see_column(path, field, file.schema_arrow)
            metadata = file.metadata
        # Neither whole row groups at once, nor a repeated string once a row.
        with pyarrow.parquet.ParquetFile(
            path,
            metadata=metadata,
            pre_buffer=False,
            buffer_size=1 << 20,
            read_dictionary=[field],
        ) as file:
            yield file
    except (OSError, pyarrow.ArrowException, UnicodeError) as error:
        told = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise InputError(
            f"{path}: must be a whole and sound parquet file, got: {told}. "
            "Get it anew, or remove it."
        ) from None


def _see_column(path: Path, field: str, schema: Any) -> None:
    if field not in schema.names:
        raise InputError(
            f"{path}: must have a column {field!r}, has {', '.join(map(repr, schema.names))}. "
            "Mend the source's text_field."
        )
    kind = schema.field(field).type
    kind = kind.value_type if str(kind).startswith("dictionary") else kind
    if str(kind) not in _STRINGS:
        raise InputError(
            f"{path}: column {field!r} must hold strings, got {kind}. Mend the source's text_field."
        )


_STRINGS = ("string", "large_string", "string_view", "binary", "large_binary")
