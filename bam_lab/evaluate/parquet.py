"""Rows as parquet, for what is too much for CSV: a row a document."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of equal columns; a column of unlike values becomes JSON text.

    The file is there whole or not at all.
    """
    frame = pd.DataFrame(list(rows))
    for name in frame.columns:
        if len({type(value) for value in frame[name] if value is not None}) > 1:
            frame[name] = [json.dumps(value, ensure_ascii=False) for value in frame[name]]
    written = path.with_suffix(".part")
    frame.to_parquet(written, index=False)
    written.replace(path)
