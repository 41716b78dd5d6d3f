"""The evaluate stage: a trained model in, held-out scores out."""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bam_lab.evaluate.heldout import score
from bam_lab.record.files import write_text
from bam_lab.record.tables import write_rows
from bam_lab.run.context import Speed, StageContext
from bam_lab.run.stages_common import TOKENS, load_any
from bam_lab.train.numerics import prepare

SCORES = ("kind", "domain", "source", "split", "metric", "context", "unit", "value")


def evaluate(context: StageContext) -> None:
    """Write `scores.csv`, and `documents.parquet` with the loss of every document."""
    prepare(context.threads)
    model = load_any(context.inputs["model"]).to(context.numerics.device)
    scores: list[dict[str, Any]] = []
    documents: list[dict[str, Any]] = []
    parts = [(s, d) for s in context.spec["splits"] for d in context.spec["domains"]]
    parts += [("test", d) for d in context.spec.get("held_out_only", ())]
    speed = Speed(len(parts), context.spec["tokens_per_domain"])
    for done, (split, domain) in enumerate(parts):
        context.check_stop()
        context.report(replace(speed.at(done), note=f"{domain} {split}"))
        found = score(
            model.eval(),
            context.inputs["tokenizer"] / TOKENS,
            [domain],
            split,
            context.spec["model"]["max_seq_len"],
            context.spec["tokens_per_domain"],
            context.numerics.precision,
        )
        scores += found[0]
        documents += found[1]
    write_csv(context.work / "scores.csv", SCORES, scores)
    write_rows(context.work / "documents.parquet", documents)


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """Write rows that have exactly these columns; floats with all their digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
