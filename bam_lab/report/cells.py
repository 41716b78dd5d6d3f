"""Tidy cells from the evaluation stages: one a model, replicate and domain, missing ones too."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from bam_lab.record.files import intact
from bam_lab.record.store import Store
from bam_lab.report.evidence import Cell, Role, StageFact

SPLIT = "test"


def cells_of(store: Store, stages: Sequence[StageFact], domains: Sequence[str]) -> tuple[Cell, ...]:
    """Return the cells of every evaluation stage, in the order of the stages and domains."""
    cells: list[Cell] = []
    for stage in stages:
        if stage.name != "evaluate":
            continue
        scores = _scores(store, stage.key) if stage.done else {}
        for domain in domains:
            found = scores.get(domain, {})
            missing = "" if found else reason(stages, stage)
            if stage.done and not found:
                missing = f"{stage.key} has no {SPLIT} score for {domain}"
            cells.append(
                Cell(
                    role=cast(Role, stage.role),
                    name=stage.arm or stage.domain or "seed_model",
                    replicate=stage.replicate,
                    domain=domain,
                    nll=found.get("nll"),
                    bits_per_byte=found.get("bits_per_byte"),
                    tokens=int(found.get("tokens", 0)),
                    bytes=int(found.get("bytes", 0)),
                    evaluation=stage.key,
                    runs=(stage.inputs["model"], stage.key) if stage.done else (),
                    missing=missing,
                )
            )
    return tuple(cells)


def reason(stages: Sequence[StageFact], evaluation: StageFact) -> str:
    """Say why an evaluation has no result: the first failure on its way, else what is not run."""
    by_key = {stage.key: stage for stage in stages}
    way = [by_key[key] for key in _way(by_key, evaluation.key)]
    for stage in way:
        if stage.failure:
            return f"{stage.label}: {stage.failure}"
    waiting = next((stage for stage in way if not stage.done), evaluation)
    return f"not run yet: {waiting.label}"


def _way(by_key: dict[str, StageFact], key: str) -> list[str]:
    """Return the keys of all that `key` needs, inputs first, and `key` itself."""
    keys = [k for source in by_key[key].inputs.values() for k in _way(by_key, source)]
    return list(dict.fromkeys([*keys, key]))


def _scores(store: Store, key: str) -> dict[str, dict[str, float]]:
    """Return {domain: {metric: value}} of the whole domain's test split."""
    found: dict[str, dict[str, float]] = {}
    rows = read_csv(store.stage(key), "scores.csv")
    with intact(store.stage(key)):
        for row in rows:
            if (row["kind"], row["source"], row["split"]) == ("heldout", "*", SPLIT):
                found.setdefault(row["domain"], {})[row["metric"]] = float(row["value"])
    return found


def read_csv(folder: Path, name: str) -> list[dict[str, str]]:
    """Return the rows of a stage's CSV file.

    Raises:
        InputError: it is missing or cut short.
    """
    with intact(folder):
        text = (folder / name).read_text(encoding="utf-8")
        if not text.endswith("\n"):
            raise ValueError(f"{name} is cut short")
    return list(csv.DictReader(io.StringIO(text)))
