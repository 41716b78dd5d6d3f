"""Tidy cells from the evaluation stages: one a model, replicate and domain, missing ones too."""

import csv
from collections.abc import Sequence
from typing import cast

from bam_lab.record.store import Store
from bam_lab.report.evidence import Cell, Role, StageFact

SPLIT = "test"
ROLES = ("seed_model", "expert", "step-0", "arm")
_ORDER = ("corpus", "tokenizer", "seed_model", "expert", "upcycle", "mixture", "evaluate")


def cells_of(
    store: Store, stages: Sequence[StageFact], domains: Sequence[str]
) -> tuple[Cell, ...]:
    """Return the cells of every evaluation stage, in the order of the stages and domains."""
    cells: list[Cell] = []
    for stage in stages:
        if stage.name != "evaluate":
            continue
        scores = _scores(store, stage.key) if stage.done else {}
        model = model_of(stages, stage)
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
                    runs=tuple(s.key for s in (model, stage) if s is not None and s.done),
                    missing=missing,
                )
            )
    return tuple(cells)


def model_of(stages: Sequence[StageFact], evaluation: StageFact) -> StageFact | None:
    """Return the stage whose model an evaluation scored."""
    made_by = {"seed_model": "seed_model", "expert": "expert", "step-0": "upcycle"}
    name = made_by.get(evaluation.role, "mixture")
    place = (evaluation.arm, evaluation.replicate, evaluation.domain)
    for stage in stages:
        if stage.name == name and (stage.arm, stage.replicate, stage.domain) == place:
            return stage
    return None


def reason(stages: Sequence[StageFact], evaluation: StageFact) -> str:
    """Say why an evaluation has no result: the first failure on its way, else what is not run."""
    way = [stage for stage in stages if _before(stage, evaluation)]
    way.sort(key=lambda stage: _ORDER.index(stage.name))
    for stage in way:
        if stage.failure:
            return f"{stage.label}: {stage.failure}"
    waiting = next((stage.label for stage in way if not stage.done), evaluation.label)
    return f"not run yet: {waiting}"


def _before(stage: StageFact, evaluation: StageFact) -> bool:
    """Return whether `evaluation` needs `stage`, or is it.

    An arm is taken to need every expert of its replicate.
    """
    if stage.key == evaluation.key:
        return True
    if stage.name == "evaluate" or stage.replicate not in (None, evaluation.replicate):
        return False
    if stage.arm is not None:
        wanted = ("upcycle",) if evaluation.role == "step-0" else ("upcycle", "mixture")
        return stage.arm == evaluation.arm and stage.name in wanted
    if stage.name == "expert" and evaluation.arm is None:
        return stage.domain == evaluation.domain
    return True


def _scores(store: Store, key: str) -> dict[str, dict[str, float]]:
    """Return {domain: {metric: value}} of the whole domain's test split."""
    found: dict[str, dict[str, float]] = {}
    with (store.stage(key) / "scores.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (row["kind"], row["source"], row["split"]) == ("heldout", "*", SPLIT):
                found.setdefault(row["domain"], {})[row["metric"]] = float(row["value"])
    return found
