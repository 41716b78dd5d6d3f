"""Gather the evidence of one ablation from a store: its index, and the folders of finished stages.

Only folders with DONE are read. What is not there becomes a missing cell with its reason: the
recorded failure of the stage itself or of one before it, else "not run yet".
"""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bam_lab.errors import InputError
from bam_lab.record import ledger as ledger_file
from bam_lab.record import metrics as metrics_file
from bam_lab.record.files import intact, read_json
from bam_lab.record.stages import TEXT, TRAINING
from bam_lab.record.store import Store
from bam_lab.report.cells import cells_of
from bam_lab.report.evaluated import evaluations_of
from bam_lab.report.evidence import (
    Arm,
    Curve,
    Evidence,
    Order,
    Provenance,
    Receipt,
    Setting,
    StageFact,
    SuiteFact,
)
from bam_lab.report.measures import measures_of
from bam_lab.report.noise import noise_of
from bam_lab.report.stability import stability_of
from bam_lab.spec.external import External

RECEIPT = "receipt.json"
ORDER = "order.json"
POINTS = 80
"""Points kept of a training curve."""


def collect(store_root: Path, index_path: Path) -> Evidence:
    """Read everything that the report of one ablation needs.

    Raises:
        InputError: there is no index, or its stages ran under different numerics.
    """
    store = Store(store_root)
    try:
        with intact(index_path):
            index = read_json(index_path)
            keys = {entry["fingerprint"]: entry["key"] for entry in index["stages"]}
    except FileNotFoundError:
        raise InputError(
            f"{index_path} is missing: nothing of this ablation is in the store. "
            "Start it with `bam-lab run`."
        ) from None
    stages = tuple(_stage(store, entry, keys) for entry in index["stages"])
    domains, alone = tuple(index["domains"]), tuple(index.get("held_out_only", ()))
    provenance = _provenance(store, stages)
    _same_numerics(provenance)
    evaluations, items = evaluations_of(store, stages, _timed(index))
    evidence = Evidence(
        id=index["ablation"]["id"],
        scale=index["scale_name"],
        overrides=tuple(index["overrides"]),
        added=tuple(index.get("added", ())),
        replicates=index["replicates"],
        ablation=index["ablation"],
        recipe=index["recipe"],
        sizes=index["scale"],
        model=index["model"],
        domains=domains,
        general=index.get("general", domains[0]),
        held_out_only=alone,
        arms=_arms(index),
        cells=cells_of(store, stages, (*domains, *alone)),
        noise=noise_of(store, stages, domains, _baselines(index)),
        stages=stages,
        curves=_curves(store, stages),
        receipts=tuple(_receipt(store, s) for s in stages if _has_receipt(s, index["arms"])),
        provenance=provenance,
        corpus=_corpus(store, stages, "corpus.json"),
        crossed=_corpus(store, stages, "crossed.json"),
        orders=tuple(_order(store, s) for s in stages if s.name == "order" and s.done),
        external=tuple(
            External.model_validate_json(json.dumps(entry)) for entry in index.get("external", ())
        ),
        settings=_settings(index),
        suites=tuple(SuiteFact.model_validate_json(json.dumps(s)) for s in index.get("suites", ())),
        items=items,
        evaluations=evaluations,
        command=_command(index),
    )
    stability = stability_of(evidence, _logs(store, stages))
    evidence = evidence.model_copy(update={"stability": stability})
    return evidence.model_copy(update={"measures": measures_of(evidence)})


def _arms(index: dict[str, Any]) -> tuple[Arm, ...]:
    return tuple(
        Arm(
            name=name,
            method=entry["method"],
            experts=tuple(entry["experts"]),
            branches=tuple(entry.get("branches", entry["experts"])),
            data=entry.get("data", {}),
            budget=entry["budget"],
            setting=entry.get("setting", ""),
            base=entry.get("base", name),
            axes=entry.get("axes", {}),
        )
        for name, entry in index["arms"].items()
    )


def _settings(index: dict[str, Any]) -> tuple[Setting, ...]:
    return tuple(
        Setting(
            name=name,
            axes=entry["axes"],
            changes=entry["changes"],
            recipe=entry["recipe"],
            sizes=entry["scale"],
            model=entry["model"],
        )
        for name, entry in index.get("settings", {}).items()
    )


def _timed(index: dict[str, Any]) -> dict[str, list[str]]:
    """Return the key of each `latency` stage -> the arms that it times, in its order."""
    return {row["key"]: row["arms"] for row in index["stages"] if row["name"] == "latency"}


def _logs(store: Store, stages: Sequence[StageFact]) -> dict[str, list[dict[str, Any]]]:
    """Return key -> the rows of the training log of every finished mixture phase."""
    found = {}
    for stage in stages:
        if stage.name == "mixture" and stage.done and stage.ledger:
            with intact(store.stage(stage.key)):
                found[stage.key] = metrics_file.read(store.stage(stage.key) / metrics_file.NAME)
    return found


def _baselines(index: dict[str, Any]) -> dict[str, str]:
    """Return the arm that each arm is compared with."""
    baseline = index["ablation"]["baseline"]
    settings = {arm: entry.get("setting", "") for arm, entry in index["arms"].items()}
    return {arm: f"{baseline}@{name}" if name else baseline for arm, name in settings.items()}


def _stage(store: Store, entry: dict[str, Any], keys: dict[str, str]) -> StageFact:
    key = entry["key"]
    done = store.is_done(key)
    failure = None if done else store.failure(key)
    ledger: dict[str, Any] = {}
    if done and entry["name"] in TRAINING:
        with intact(store.stage(key)):
            ledger = dict(read_json(store.stage(key) / ledger_file.NAME))
    return StageFact(
        key=key,
        name=entry["name"],
        label=entry["label"],
        role=entry["role"],
        arm=entry["arm"],
        replicate=entry["replicate"],
        domain=entry["domain"],
        inputs={role: keys[fingerprint] for role, fingerprint in entry["inputs"].items()},
        done=done,
        failure=str(failure["reason"]) if failure else "",
        ledger=ledger,
    )


def _has_receipt(stage: StageFact, arms: dict[str, Any]) -> bool:
    """Return whether the stage mixed dense models; ensembles and conversions prove nothing."""
    mixes = stage.role == "upcycle" and arms[stage.arm or ""]["method"]["method"] != "btm"
    return stage.done and mixes


def _receipt(store: Store, stage: StageFact) -> Receipt:
    with intact(store.stage(stage.key)):
        facts = read_json(store.stage(stage.key) / RECEIPT)
    return Receipt(key=stage.key, arm=stage.arm or "", replicate=stage.replicate, facts=facts)


def _curves(store: Store, stages: Sequence[StageFact]) -> tuple[Curve, ...]:
    """Return the curves, stretches of one phase in their order."""
    found = (_curve(store, stage) for stage in stages if stage.done and stage.ledger)
    return tuple(sorted(found, key=lambda curve: curve.first_step))


def _curve(store: Store, stage: StageFact) -> Curve:
    with intact(store.stage(stage.key)):
        rows = metrics_file.read(store.stage(stage.key) / metrics_file.NAME)
    steps = max(int(stage.ledger["steps"]), 1)
    first = int(stage.ledger.get("first_step", 0))
    rows = [row | {"step": row["step"] - first} for row in rows]
    train = [row for row in rows if "loss" in row]
    return Curve(
        key=stage.key,
        name=stage.name,
        arm=stage.arm,
        replicate=stage.replicate,
        domain=stage.domain,
        step_tokens=stage.ledger["tokens"] / steps,
        step_flops=stage.ledger["training_flops"] / steps,
        train=_thin([(row["step"], row["loss"]) for row in train]),
        valid=tuple((row["step"], row["valid"]) for row in rows if "valid" in row),
        final=_final(train),
        first_step=first,
    )


def _thin(points: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Return at most `POINTS` points: the mean loss of equal stretches, at their last step."""
    width = max(1, -(-len(points) // POINTS))
    stretches = [points[start : start + width] for start in range(0, len(points), width)]
    return tuple(
        (stretch[-1][0], sum(loss for _, loss in stretch) / len(stretch)) for stretch in stretches
    )


def _final(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    last = rows[-max(1, len(rows) // 10) :]
    names = sorted({key for row in last for key, value in row.items() if _number(value)})
    means = {}
    for name in names:
        values = [row[name] for row in last if _number(row.get(name))]
        means[name] = float(sum(values) / len(values))
    return means


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _provenance(store: Store, stages: Sequence[StageFact]) -> tuple[Provenance, ...]:
    """Group the stages by how they were made; threads a stage belong to the spec, not here."""
    groups: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for stage in stages:
        if not stage.done:
            continue
        with intact(store.stage(stage.key)):
            manifest = read_json(store.stage(stage.key) / "manifest.json")
            numerics = {k: v for k, v in manifest["numerics"].items() if k != "threads"}
            made = {
                "numerics": numerics,
                "packages": manifest["packages"],
                "git": manifest["git"],
                "hardware": manifest["hardware"],
            }
        groups.setdefault(repr(made), (made, []))[1].append(stage.key)
    return tuple(
        Provenance(**made, stages=tuple(dict.fromkeys(keys))) for made, keys in groups.values()
    )


def _same_numerics(provenance: Sequence[Provenance]) -> None:
    kinds = {
        repr(sorted(entry.numerics.items()))
        for entry in provenance
        if any(key.rpartition("-")[0] not in TEXT for key in entry.stages)
    }
    if len(kinds) > 1:
        raise InputError(
            f"the store must hold one kind of numerics, got {' and '.join(sorted(kinds))}. "
            "Numbers of different precision are not compared: use one store for each."
        )


def _corpus(store: Store, stages: Sequence[StageFact], name: str) -> dict[str, Any]:
    """Return a file of the corpus; empty before it is built, or where an older one lacks it."""
    for stage in stages:
        if stage.name == "corpus" and stage.done and (store.stage(stage.key) / name).exists():
            with intact(store.stage(stage.key)):
                return dict(read_json(store.stage(stage.key) / name))
    return {}


def _order(store: Store, stage: StageFact) -> Order:
    with intact(store.stage(stage.key)):
        return Order(
            key=stage.key, label=stage.label, domains=read_json(store.stage(stage.key) / ORDER)
        )


def _command(index: dict[str, Any]) -> str:
    parts = ["bam-lab", "reproduce", index["ablation"]["id"], "--scale", index["scale_name"]]
    parts += ["--replicates", str(index["replicates"])]
    for override in index["overrides"]:
        parts += ["--set", override]
    for name in index.get("added", ()):
        parts += ["--domain", name]
    return shlex.join(parts)
