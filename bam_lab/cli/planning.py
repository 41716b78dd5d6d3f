"""What an ablation will cost: its arms and every stage of its graph, as plain data.

`plan` prints it, `list` takes its totals, `reproduce` shows it before it starts.
"""

from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, replace
from typing import Any

from bam_lab.cli import plan_lineage
from bam_lab.cost import kv, memory
from bam_lab.cost.flops import FlopCount, per_token
from bam_lab.cost.match import DENSE, ArmBudget, mixed, num_experts, settled, solve
from bam_lab.cost.match.measured import Model, model_of
from bam_lab.cost.params import ParamCount, count
from bam_lab.cost.time import Job, Pace, makespan, pace
from bam_lab.record.manifest import cores
from bam_lab.record.store import Store
from bam_lab.run.calibration import calibrated, models_of
from bam_lab.run.reproduce import current_graph
from bam_lab.run.scheduler import unfinished
from bam_lab.run.stage import Graph, Stage
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.resolved import ResolvedAblation


@dataclass(frozen=True)
class ModelRow:
    """Hold what one model costs a token; `arm` "" or "@setting": the seed model and branches."""

    arm: str
    num_experts: int
    experts: tuple[str, ...]
    params: ParamCount
    flops: FlopCount
    kv_bytes_per_token: int
    budget: ArmBudget | None


@dataclass(frozen=True)
class StageRow:
    """Hold one stage of the graph.

    Attributes:
        needs: the keys of the stages that it reads.
        setting: a setting that needs it.
        batch_sequences: of a training stage, as are the two below.
        params_active: parameters that one token uses.
        bytes_communicated: what 8 devices would send.
    """

    name: str
    label: str
    arm: str | None
    replicate: int | None
    key: str
    done: bool
    steps: int
    tokens: int
    training_flops: int
    executed_flops: int
    threads: int
    seconds: float
    peak_bytes: int
    needs: tuple[str, ...] = ()
    setting: str = ""
    batch_sequences: int = 0
    params_active: int = 0
    bytes_communicated: int = 0


@dataclass(frozen=True)
class Plan:
    """Hold an ablation's cost.

    Attributes:
        known: whether the corpus is built and a measured match is timed; before, nothing after
            them can be recognised as done.
        seconds_left: wall time of the stages that are not done.
        peak_bytes: memory of the most demanding stages that can run at once.
        pace: where the times come from.
    """

    resolved: ResolvedAblation
    replicates: int
    known: bool
    models: tuple[ModelRow, ...]
    stages: tuple[StageRow, ...]
    seconds_left: float
    peak_bytes: int
    workers: int
    pace: str

    @property
    def corpus_built(self) -> bool:
        """Whether the store has the corpus, or imported what is known of it."""
        return self.known or all(row.done for row in self.stages if row.name == "corpus")


def make_plan(
    resolved: ResolvedAblation, store: Store, replicates: int | None, workers: int | None
) -> Plan:
    """Plan an ablation against what the store already has."""
    resolved = calibrated(resolved, store)
    repeats = replicates or resolved.ablation.replicates.count
    graph = current_graph(resolved, store, repeats)
    resolved = settled(resolved)
    models = _models(resolved)
    speed = pace(store)
    left = {stage.fingerprint for stage in unfinished(graph, store)}
    under = dict(resolved.settings)
    rows = [
        replace(
            _stage_row(under.get(graph.setting(stage), resolved), stage, models, left, speed),
            needs=tuple(need.key for need in graph.needs(stage)),
        )
        for stage in graph.stages.values()
    ]
    available = cores()
    at_once = workers or max(available // min(row.threads for row in rows), 1)
    return Plan(
        resolved=resolved,
        replicates=repeats,
        known=graph.known,
        models=tuple(models.values()),
        stages=tuple(rows),
        seconds_left=_seconds_left(graph, rows, available),
        peak_bytes=_peak_bytes(rows, available, at_once),
        workers=at_once,
        pace=speed.source(),
    )


def as_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain data."""
    spec = plan.resolved.ablation
    return {
        "id": spec.id,
        "title": spec.title,
        "scale": plan.resolved.scale_name,
        "overrides": list(plan.resolved.overrides),
        "added": list(plan.resolved.added),
        "match": spec.match.model_dump(),
        "baseline": spec.baseline,
        "replicates": plan.replicates,
        "corpus_built": plan.corpus_built,
        "models": {row.arm or "dense": _model_json(row) for row in plan.models},
        "lineages": plan_lineage.as_json(plan),
        "stages": [asdict(row) for row in plan.stages],
        "training_flops": sum(row.training_flops for row in plan.stages),
        "seconds_left": plan.seconds_left,
        "peak_bytes": plan.peak_bytes,
        "workers": plan.workers,
        "time_from": plan.pace,
    }


def _model_json(row: ModelRow) -> dict[str, Any]:
    budget = asdict(row.budget) if row.budget else {}
    budget.pop("params", None)
    budget.pop("flops", None)
    return {
        "num_experts": row.num_experts,
        "experts": list(row.experts),
        "params": asdict(row.params),
        "flops_per_token": asdict(row.flops),
        "kv_bytes_per_token": row.kv_bytes_per_token,
        **({"mixture": budget} if budget else {}),
    }


def _models(resolved: ResolvedAblation) -> dict[str, ModelRow]:
    budgets = solve(resolved)
    first = resolved.settings[0][1]
    rows: dict[str, ModelRow] = {}
    for setting, child in resolved.settings:
        if child is first or child.model != first.model:
            dense = "" if child is first else f"@{setting}"
            rows[dense] = _model_row(child, dense, DENSE, None)
        for arm, method in child.arms.items():
            rows[arm] = _model_row(child, arm, method, budgets.get(arm))
    return rows


def _model_row(
    resolved: ResolvedAblation, arm: str, method: MethodSpec, budget: ArmBudget | None
) -> ModelRow:
    model = resolved.model
    experts = num_experts(resolved, method) if arm in resolved.arms else 1
    return ModelRow(
        arm=arm,
        num_experts=experts,
        experts=mixed(resolved, method),
        params=count(model, method, experts),
        flops=per_token(model, method, experts, model.max_seq_len),
        kv_bytes_per_token=kv.bytes_per_token(model, method, experts),
        budget=budget,
    )


def _stage_row(
    resolved: ResolvedAblation,
    stage: Stage,
    models: Mapping[str, ModelRow],
    left: Set[str],
    speed: Pace,
) -> StageRow:
    row = models[stage.arm or (dense if (dense := f"@{resolved.setting}") in models else "")]
    steps = tokens = flops = executed = 0
    match stage.name:
        case "seed_model" | "expert" | "mixture":
            steps = stage.spec["steps"] - stage.spec.get("first_step", 0)
            budget = stage.settings["budget"]
            sequences = steps * stage.spec["size"]["batch_sequences"]
            tokens = sequences * resolved.model.max_seq_len
            flops, executed = budget["training_flops"], budget["executed_flops"]
        case "evaluate":
            texts = len(stage.spec["domains"]) * len(stage.spec["splits"])
            texts += len(stage.spec.get("held_out_only", ()))
            tokens = resolved.scale.evaluation.tokens_per_domain * texts
            executed = tokens * row.flops.executed_forward
        case _:  # no training, and no forward passes that its spec counts
            pass
    return StageRow(
        name=stage.name,
        label=stage.label,
        arm=stage.arm,
        replicate=stage.replicate,
        key=stage.key,
        done=stage.fingerprint not in left,
        steps=steps,
        tokens=tokens,
        training_flops=flops,
        executed_flops=executed,
        threads=stage.threads,
        seconds=speed.estimate(stage.name, executed, stage.threads),
        peak_bytes=_stage_bytes(resolved, stage, row),
        setting=resolved.setting,
        batch_sequences=stage.spec["size"]["batch_sequences"] if steps else 0,
        params_active=stage.settings["budget"]["params_active"] if steps else 0,
        bytes_communicated=stage.settings["budget"]["bytes_communicated"] if steps else 0,
    )


def _stage_bytes(resolved: ResolvedAblation, stage: Stage, row: ModelRow) -> int:
    model = resolved.model
    method = resolved.arms[stage.arm] if stage.arm else DENSE
    match stage.name:
        case "corpus" | "tokenizer" | "order" | "build_tasks":
            return memory.PREPARE_BYTES
        case "calibrate":
            return sum(_timed_bytes(resolved, stage, timed) for timed in models_of(resolved))
        case "upcycle":
            return memory.upcycling(model, method, row.num_experts, DENSE).total
        case "latency":
            models = [model_of(resolved, method) for method in resolved.arms.values()]
            return sum(_timed_bytes(resolved, stage, timed) for timed in models)
        case "evaluate" | "tasks" | "routing" | "probe":
            return memory.evaluation(model, method, row.num_experts).total
        case "seed_model" | "expert" | "mixture":
            batch = stage.spec["size"]["batch_sequences"]
            return memory.training(model, method, row.num_experts, batch).total


def _timed_bytes(resolved: ResolvedAblation, stage: Stage, timed: Model) -> int:
    """Return the memory of one of the models that a calibration holds at once."""
    model, batch = resolved.model, stage.spec.get("batch_sequences")
    if batch is None:
        return memory.evaluation(model, timed.method, timed.num_experts).total
    return memory.training(model, timed.method, timed.num_experts, batch).total


def _seconds_left(graph: Graph, rows: list[StageRow], available: int) -> float:
    place = {fingerprint: index for index, fingerprint in enumerate(graph.stages)}
    jobs = [
        Job(
            seconds=0.0 if row.done else row.seconds,
            threads=row.threads,
            needs=[place[fingerprint] for fingerprint in stage.inputs.values()],
        )
        for stage, row in zip(graph.stages.values(), rows, strict=True)
    ]
    return makespan(jobs, available)


def _peak_bytes(rows: list[StageRow], available: int, workers: int) -> int:
    """Return the most that stages of one kind need together, this program not counted."""
    return max(row.peak_bytes * max(min(available // row.threads, workers), 1) for row in rows)
