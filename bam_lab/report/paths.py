"""What an arm cost from the seed model on: its stages summed, and side by side.

Branches are trained apart from one another (arXiv:2403.07816 §3), so that the time until an arm is
trained is that of the longest way through its stages, not their sum.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from bam_lab.cost.communication import DEVICES
from bam_lab.report.evidence import Evidence, StageFact
from bam_lab.report.scope import number
from bam_lab.report.table import Column, Row, Table, Value, hoist, missing, nothing
from bam_lab.report.tables import arms_in_order, mark_of

COLUMNS = 12
_PHASES = {"seed_model": "seed model", "expert": "branches", "mixture": "mixture phase"}


def lineage_table(evidence: Evidence) -> Table:
    """Return what every arm cost by phase: the ledgers' mean over the finished replicates."""
    rows = []
    for arm in arms_in_order(evidence):
        found = [lineage for lineage in lineages(evidence, arm).values() if lineage]
        values = _values(evidence, found) if found else [missing("not run yet")] * COLUMNS
        rows.append(hoist(Row(arm, tuple(values), mark_of(evidence, arm))))
    phases = tuple(_PHASES.values())
    return Table(
        label="lineage",
        title="From the seed model to the trained arm",
        caption=(
            "Mean over replicates, from the ledgers; an arm pays for the seed model and branches "
            "that it uses in full, though arms share them. Device time: seconds of the training "
            "loops times devices. Critical path: wall seconds from the trained seed model to the "
            "trained arm, branches side by side. Active × tokens: activated parameters times "
            "training tokens. "
            f"Bytes sent: what {DEVICES} devices would send, experts in groups, by arithmetic."
        ),
        corner="arm",
        columns=(
            *(Column(name, "device s") for name in (*phases, "sum")),
            Column("path", "critical, s"),
            *(Column(name, "active × tokens") for name in (*phases[1:], "sum")),
            *(Column(name, "bytes sent") for name in (*phases, "sum")),
        ),
        rows=tuple(rows),
    )


def _values(evidence: Evidence, found: Sequence[Sequence[StageFact]]) -> list[Value]:
    by_key = {stage.key: stage for stage in evidence.stages}
    runs = tuple(dict.fromkeys(stage.key for stages in found for stage in stages))
    after = [critical_seconds(stages, by_key) - _seed_seconds(stages) for stages in found]
    path = math.fsum(after) / len(found)
    return [
        *_by_phase(found, runs, tuple(_PHASES), lambda s: float(s.ledger["device_seconds"])),
        Value(f"{path:,.0f}", path, runs=runs),
        *_by_phase(found, runs, ("expert", "mixture"), active_tokens),
        *_sent(found, runs),
    ]


def _sent(found: Sequence[Sequence[StageFact]], runs: tuple[str, ...]) -> Iterator[Value]:
    def sent(stage: StageFact) -> float:
        return float(stage.ledger["bytes_communicated"])

    if any(sent(stage) for stages in found for stage in stages):
        yield from _by_phase(found, runs, tuple(_PHASES), sent)
    else:
        yield from [nothing("not counted when this was run")] * (len(_PHASES) + 1)


def _seed_seconds(stages: Sequence[StageFact]) -> float:
    return math.fsum(
        float(stage.ledger["wall_seconds"]) for stage in stages if stage.name == "seed_model"
    )


def active_tokens(stage: StageFact) -> float:
    """Return activated parameters times tokens of a training stage."""
    return float(stage.ledger["params_active"] * stage.ledger["tokens"])


def _by_phase(
    found: Sequence[Sequence[StageFact]],
    runs: tuple[str, ...],
    phases: Sequence[str],
    cost: Callable[[StageFact], float],
) -> Iterator[Value]:
    """Yield the cost of each phase and their sum, means over the replicates."""
    total = 0.0
    for phase in phases:
        own = [math.fsum(cost(s) for s in stages if s.name == phase) for stages in found]
        mean = math.fsum(own) / len(found)
        total += mean
        used = any(stage.name == phase for stages in found for stage in stages)
        yield _count(mean, runs) if used else nothing("the arm has no such phase")
    yield _count(total, runs)


def _count(value: float, runs: tuple[str, ...]) -> Value:
    return Value(number(value), value, runs=runs)


def lineages(evidence: Evidence, arm: str) -> dict[int | None, tuple[StageFact, ...]]:
    """Return replicate -> an arm's training stages, inputs first; none where one is missing."""
    by_key = {stage.key: stage for stage in evidence.stages}
    ends: dict[int | None, list[str]] = {}
    for stage in evidence.stages:
        if stage.arm == arm and stage.name in ("upcycle", "mixture"):
            ends.setdefault(stage.replicate, []).append(stage.key)
    found = {}
    for replicate, keys in ends.items():
        every = [by_key[key] for key in _way(by_key, keys)]
        trained = tuple(stage for stage in every if stage.name in _PHASES)
        whole = all(stage.ledger for stage in trained)
        found[replicate] = trained if whole else ()
    return found


def critical_seconds(stages: Sequence[StageFact], by_key: Mapping[str, StageFact]) -> float:
    """Return the wall seconds of the longest way through some stages."""
    ends: dict[str, float] = {}

    def end(key: str) -> float:
        if key not in ends:
            stage = by_key[key]
            start = max((end(source) for source in stage.inputs.values()), default=0.0)
            ends[key] = start + float(stage.ledger.get("wall_seconds", 0.0))
        return ends[key]

    return max((end(stage.key) for stage in stages), default=0.0)


def _way(by_key: Mapping[str, StageFact], keys: Sequence[str]) -> tuple[str, ...]:
    """Return all keys that some stages need, inputs first, and their own."""
    found: dict[str, None] = {}

    def visit(key: str) -> None:
        if key not in found:
            for source in by_key[key].inputs.values():
                visit(source)
            found[key] = None

    for key in keys:
        visit(key)
    return tuple(found)
