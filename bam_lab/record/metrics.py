"""A stage's metrics: one JSON object a line, appended as training goes.

A row about training holds means over the steps since the row before, over all ranks and passes:
`loss`, the language-model loss in nats a token, the losses and facts of routers by name, and
`grad_norm_mean`. Of the same steps, `loss_max` and `grad_norm_max` are the largest single one;
`grad_norm` is the last step's alone. Norms are before clipping. Older logs lack `loss_max`,
`grad_norm_mean` and `grad_norm_max`.

A row about held-out text holds `valid`, domain -> nats a token, and from a mixture's second one on
`churn`, ffn or attention -> router churn since the row before (`evaluate/churn.py`).

A crash can tear the last line; readers leave it out. A resumed stage first cuts the rows after its
checkpoint's step, so that the file reads as if nothing had happened.
"""

import json
import os
from pathlib import Path
from typing import Any

from bam_lab.record.files import explained, write_text

NAME = "metrics.jsonl"


def append(path: Path, row: dict[str, Any]) -> None:
    """Append one row. NaN is written as such, so that a diverged run can be read."""
    with explained(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """Return all whole rows; an empty list when there is no file yet."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    lines = text.split("\n")
    whole = lines[:-1]  # What follows the last newline is torn.
    return [json.loads(line) for line in whole if line]


def cut(path: Path, step: int) -> None:
    """Drop the rows after `step`, and a torn last line."""
    if path.exists():
        rows = [row for row in read(path) if row["step"] <= step]
        write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def sync(path: Path) -> None:
    """Flush the rows to disk (before the checkpoint that counts on them)."""
    if path.exists():
        with path.open("a") as file:
            os.fsync(file.fileno())
