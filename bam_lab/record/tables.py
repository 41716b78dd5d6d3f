"""Rows as parquet, for what is too much for CSV: a row a document."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of equal columns; a column of unlike kinds of values becomes JSON text.

    The file is there whole or not at all.
    """
    names = list(rows[0]) if rows else []
    columns = {name: _column([row[name] for row in rows]) for name in names}
    written = path.with_suffix(".part")
    parquet.write_table(pa.table(columns), written)
    written.replace(path)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file that `write_rows` wrote.

    Raises:
        OSError, ValueError: it is not there, or no such file.
    """
    rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return rows


def _column(values: list[Any]) -> Any:
    if len({type(value) for value in values if value is not None}) > 1:
        values = [json.dumps(value, ensure_ascii=False) for value in values]
    return pa.array(values)
