"""What every stage cost, and whether the arms are matched: as stated, planned and spent."""

from collections.abc import Mapping, Sequence

from bam_lab.cost.communication import DEVICES
from bam_lab.cost.match import TOLERANCE
from bam_lab.report.evidence import Evidence, StageFact
from bam_lab.report.scope import number
from bam_lab.report.settings import users
from bam_lab.report.standing import match_check, matched_thing
from bam_lab.report.table import Column, Row, Table, Value, hoist, missing, nothing
from bam_lab.report.tables import arms_in_order, mark_of

_LEDGER = (
    ("tokens", "tokens"),
    ("steps", "steps"),
    ("training_flops", "FLOPs (model)"),
    ("executed_flops", "FLOPs (executed)"),
    ("params_total", "parameters"),
    ("params_active", "active"),
    ("active_tokens", "active × tokens"),
    ("device_seconds", "device s"),
    ("bytes_communicated", "bytes sent"),
)


def ledger_table(evidence: Evidence) -> Table:
    """Return what every training stage cost, a mean over its replicates."""
    rows = []
    for name, stages in training_stages(evidence).items():
        done = [stage for stage in stages if stage.ledger]
        if done:
            rows.append(Row(name, tuple(_ledger_values(done)), note=_partly(done, stages)))
        else:
            gone = missing(_why_not(stages))
            rows.append(Row(name, tuple(gone for _ in (*_LEDGER, "epochs"))))
    return Table(
        label="ledger",
        title="Ledger",
        caption=(
            "Mean over replicates. Model FLOPs are what the mathematics needs and what matching "
            "uses; executed FLOPs are what ran. Active × tokens is activated parameters times "
            "training tokens. Device time is wall time of the training loop times devices. "
            f"Bytes sent: what {DEVICES} devices would send, experts in groups, by arithmetic. "
            "Epochs: how often each domain's training text was read." + _of_stable_runs(evidence)
        ),
        corner="stage",
        columns=(*(Column(title) for _, title in _LEDGER), Column("epochs", align="left")),
        rows=tuple(hoist(row) for row in rows),
    )


def match_table(evidence: Evidence) -> Table:
    """Return the match as stated and as checked."""
    rows = []
    for arm in arms_in_order(evidence):
        check = match_check(evidence, arm)
        budget = evidence.arm(arm).budget
        spent = nothing("not run yet") if check.spent is None else _ratio(check.spent)
        values = (
            _ratio(check.planned),
            spent,
            _ratio(budget["flops_ratio"]),
            _count(budget["lineage_flops"]),
            Value("matched" if check.matched else "not matched"),
        )
        rows.append(Row(arm, values, mark_of(evidence, arm)))
    return Table(
        label="match",
        title="Match, stated and checked",
        caption=(
            f"Stated: equal {matched_thing(evidence)}, within {TOLERANCE:.1%} or one optimizer "
            "step. Ratios are to the baseline: the matched quantity as planned, the mixture "
            "phase's as spent by the ledgers, the mixture phase's model FLOPs. Lineage adds seed "
            "model and branches."
        ),
        corner="arm",
        columns=(
            Column("planned"),
            Column("spent"),
            Column("FLOPs ratio"),
            Column("lineage FLOPs"),
            Column("match", align="left"),
        ),
        rows=tuple(hoist(row) for row in rows),
    )


def _of_stable_runs(evidence: Evidence) -> str:
    if not any(stage.role.startswith("stable run") for stage in evidence.stages):
        return ""
    return (
        " A stable run that budgets share is counted once, with the first that needs it; epochs "
        "are from the phase's start."
    )


def training_stages(evidence: Evidence) -> dict[str, list[StageFact]]:
    """Return the training stages in the order of the phases, replicates together.

    A dense model that some settings alone need has their names; a stable run that arms share stands
    with the first.
    """
    order = ["seed_model", "expert", "mixture"]
    stages = [stage for stage in evidence.stages if stage.name in order]
    stages.sort(key=lambda stage: order.index(stage.name))
    groups: dict[str, list[StageFact]] = {}
    limited = users(evidence)
    seen: dict[str, str | None] = {}
    for stage in stages:
        if seen.setdefault(stage.key, stage.arm) != stage.arm:
            continue
        name = {"seed_model": "seed model", "expert": f"expert {stage.domain}"}.get(stage.name)
        if name and stage.key in limited:
            name += f" @{', '.join(limited[stage.key])}"
        part = "" if stage.role == "mixture" else f", {stage.role}"
        groups.setdefault(name or f"mixture {stage.arm}{part}", []).append(stage)
    return groups


def _ledger_values(stages: Sequence[StageFact]) -> list[Value]:
    runs = tuple(stage.key for stage in stages)
    values = []
    for key, _ in _LEDGER:
        if key == "bytes_communicated" and not any(stage.ledger[key] for stage in stages):
            values.append(nothing("not counted when this was run"))
            continue
        if key == "active_tokens":
            numbers = [s.ledger["params_active"] * s.ledger["tokens"] for s in stages]
        else:
            numbers = [stage.ledger[key] for stage in stages]
        mean = sum(numbers) / len(numbers)
        text = f"{mean:,.0f}" if key in ("steps", "device_seconds") else number(mean)
        values.append(Value(text, float(mean), runs=runs))
    epochs: Mapping[str, float] = stages[0].ledger["epochs"]
    shown = ", ".join(f"{name} {count:.2f}" for name, count in epochs.items())
    values.append(Value(shown or "0", runs=runs))
    return values


def _partly(done: Sequence[StageFact], stages: Sequence[StageFact]) -> str:
    return "" if len(done) == len(stages) else f"{len(done)} of {len(stages)} replicates are done."


def _why_not(stages: Sequence[StageFact]) -> str:
    failed = [f"{stage.label}: {stage.failure}" for stage in stages if stage.failure]
    return failed[0] if failed else f"not run yet: {stages[0].label}"


def _ratio(value: float) -> Value:
    return Value(f"{value:.4f}", value)


def _count(value: float) -> Value:
    return Value(number(value), float(value))
