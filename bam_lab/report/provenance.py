"""Where the experts come from: what is behind each, and how far its dense model has moved."""

import math
from collections.abc import Sequence
from typing import Any

from bam_lab.report.evidence import Evidence, Receipt
from bam_lab.report.settings import dense_suffixes
from bam_lab.report.table import Column, Row, Table, Value, nothing
from bam_lab.report.tables import arms_in_order, mark_of
from bam_lab.spec.experts import listed
from bam_lab.spec.recipe import SEED_MODEL

GROUPS = ("all", "embeddings", "attention", "ffn")


def experts_table(evidence: Evidence) -> Table:
    """Return what is behind each of an arm's experts, in router-column order."""
    rows = []
    for arm in arms_in_order(evidence):
        found = evidence.arm(arm)
        count = Value(f"{len(found.experts)}", float(len(found.experts)))
        trained = found.budget["steps"] and not found.method.get("frozen_experts", False)
        values = (count, Value(listed(found.experts)), Value("yes" if trained else "no"))
        rows.append(Row(arm, values, mark_of(evidence, arm)))
    return Table(
        label="experts",
        title="Experts",
        caption=(
            "What is behind each expert, in router-column order: a dense model's FFN; [1/2] the "
            "first half of its hidden channels; blend[1/4] the first quarter of every model's; "
            "scratch where every weight was drawn anew."
        ),
        corner="arm",
        columns=(
            Column("experts"),
            Column("made of", align="left"),
            Column("trained in the mixture phase", align="left"),
        ),
        rows=tuple(rows),
    )


def moved_table(evidence: Evidence) -> Table | None:
    """Return how far each dense model has moved from the seed model; None before any mixing."""
    found: dict[str, list[tuple[Receipt, dict[str, Any]]]] = {}
    suffixes = dense_suffixes(evidence)
    for receipt in evidence.receipts:
        told = receipt.facts.get("provenance", {})
        if told.get("compared_with") == SEED_MODEL:
            suffix = suffixes[evidence.arm(receipt.arm).setting]
            for name, measured in told["models"].items():
                if name != SEED_MODEL:
                    found.setdefault(f"{name}{suffix}", []).append((receipt, measured))
    if not found:
        return None
    rows = [Row(name, _values(told)) for name, told in found.items()]
    return Table(
        label="moved",
        title="How far the dense experts moved",
        caption=(
            "Against the seed model, over all matrices and by part, mean over replicates. "
            "Distance: norm of the difference over the seed model's norm. Models that share no "
            "seed have a cosine near 0 and are not mixed."
        ),
        corner="dense expert",
        columns=tuple(Column(kind, group) for group in GROUPS for kind in ("distance", "cosine")),
        rows=tuple(rows),
    )


def _values(told: Sequence[tuple[Receipt, dict[str, Any]]]) -> tuple[Value, ...]:
    runs = tuple(receipt.key for receipt, _ in told)
    values = []
    for group in GROUPS:
        for kind in ("distance", "cosine"):
            numbers = [measured[group][kind] for _, measured in told if group in measured]
            if not numbers:
                values.append(nothing("not measured"))
                continue
            mean = math.fsum(numbers) / len(numbers)
            values.append(Value(f"{mean:.3f}", mean, runs=runs))
    return tuple(values)
