"""Gather what was measured beside held-out loss: tasks, routing, probes, latency."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from bam_lab.record.files import intact, read_json
from bam_lab.record.store import Store
from bam_lab.report.cells import read_csv, reason
from bam_lab.report.evidence import Evaluated, StageFact

Kind = Literal["tasks", "routing", "probe", "latency"]
KINDS: tuple[Kind, ...] = ("tasks", "routing", "probe", "latency")
REROUTED = "re-routed"
"""Of tasks: a model that routes segments, routed again at every segment."""
EXAMPLES = 5
"""Tokens kept of an expert."""


def evaluations_of(
    store: Store, stages: Sequence[StageFact], timed: Mapping[str, Sequence[str]]
) -> tuple[tuple[Evaluated, ...], dict[str, dict[str, Any]]]:
    """Return what every stage of `KINDS` measured, and the items of all tasks.

    Args:
        store: where they are.
        stages: of the ablation.
        timed: key of a `latency` stage -> the arms that it times, in its order.
    """
    items: dict[str, dict[str, Any]] = {}
    found = []
    for stage in stages:
        if stage.name in KINDS:
            found.append(_evaluated(store, stages, stage, items, timed.get(stage.key, ())))
    return tuple(found), items


def _evaluated(
    store: Store,
    stages: Sequence[StageFact],
    stage: StageFact,
    items: dict[str, dict[str, Any]],
    arms: Sequence[str],
) -> Evaluated:
    kind = cast(Kind, stage.name)
    model = {} if kind == "latency" else {"role": stage.role, "name": _name(stage)}
    second = stage.label.split()[1:2]
    about = second[0] if kind == "probe" or second == [REROUTED] else ""
    common: dict[str, Any] = model | {
        "kind": kind,
        "about": about,
        "replicate": stage.replicate,
    }
    if not stage.done:
        return Evaluated(**common, missing=reason(stages, stage))
    folder = store.stage(stage.key)
    rows = [_typed(row) for row in read_csv(folder, "scores.csv")]
    if kind == "routing":
        rows = [row for row in rows if _kept(row, stage.replicate)]
    if kind == "latency":
        rows = [row | {"arm": arms[row["arm"]]} for row in rows]
    extra = _extra(folder, kind, stage, items, arms)
    source = (stage.inputs["model"],) if "model" in stage.inputs else ()
    return Evaluated(**common, **extra, rows=tuple(rows), runs=(*source, stage.key))


def _name(stage: StageFact) -> str:
    return stage.arm or stage.domain or "seed_model"


def _kept(row: dict[str, Any], replicate: int | None) -> bool:
    """Return whether a row of routing is one that reports show."""
    return row["layer"] == "*" or (row["metric"] == "load" and replicate in (None, 0))


def _extra(
    folder: Path,
    kind: Kind,
    stage: StageFact,
    items: dict[str, dict[str, Any]],
    arms: Sequence[str],
) -> dict[str, Any]:
    match kind:
        case "tasks":
            with intact(folder):
                raw = read_json(folder / "answers.json")
            answers = {name: _answers(name, own, items) for name, own in raw["answers"].items()}
            return {"answers": answers, "left_out": raw["failures"]}
        case "routing":
            if stage.replicate not in (None, 0):
                return {}
            return {"examples": tuple(_examples(read_csv(folder, "tokens.csv")))}
        case "probe":
            with intact(folder):
                return {"left_out": read_json(folder / "left_out.json")}
        case "latency":
            with intact(folder):
                turns, left_out = (read_json(folder / f"{n}.json") for n in ("turns", "left_out"))
            return {
                "turns": tuple(turn | {"arm": arms[int(turn["arm"])]} for turn in turns),
                "left_out": {_named(place, arms): why for place, why in left_out.items()},
            }


def _named(place: str, arms: Sequence[str]) -> str:
    """Return a load that an arm cannot do, with the arm's name for its number."""
    number, _, load = place.partition(" ")
    return f"{arms[int(number)]} {load}" if number.isdigit() else place


def _answers(name: str, own: dict[str, Any], items: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a model's answers; what all models share goes to `items`, known by its digest."""
    digest = hashlib.sha256(json.dumps(own["items"]).encode()).hexdigest()[:16]
    shared = {"digest": digest, "document": own["document"], "wanted": own["wanted"]}
    items.setdefault(name, shared)
    return {"digest": digest, "value": own["value"], "given": own["given"]}


def _examples(rows: Sequence[dict[str, str]]) -> list[dict[str, Any]]:
    """Return the first tokens of every expert."""
    counts: dict[tuple[str, str, str], int] = {}
    kept = []
    for row in rows:
        place = (row["layer"], row["router"], row["expert"])
        counts[place] = counts.get(place, 0) + 1
        if counts[place] <= EXAMPLES:
            kept.append({key: row[key] for key in ("layer", "router", "expert", "text")})
    return kept


def _typed(row: dict[str, str]) -> dict[str, Any]:
    """Return a row with its numbers as numbers, without what is empty."""
    return {key: _value(key, text) for key, text in row.items() if text != ""}


def _value(key: str, text: str) -> Any:
    if key in ("version", "layer", "expert", "documents"):
        return text
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
