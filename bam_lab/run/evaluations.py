"""The stages that measure trained models beside held-out loss, as an ablation's `evaluate:` asks.

    corpus -> build_tasks -> tasks (one a model)
    model -> routing, probe (one a model each)
    latency (one a setting, of random weights)

They hang on models and nothing hangs on them: what is asked for later trains nothing anew.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from bam_lab.cost.match import mixed
from bam_lab.cost.match.measured import model_of
from bam_lab.record.stages import StageName
from bam_lab.run.stage import Stage, identify, plain
from bam_lab.spec.evaluation_rules import segment_lens_of, suite_reference
from bam_lab.spec.experts import is_mixture
from bam_lab.spec.methods import BTMMethod
from bam_lab.spec.resolved import ResolvedAblation
from bam_lab.spec.task_files import Asked, Suite, read_suite
from bam_lab.spec.tasks import Continuation, LastWord, NextLine, TaskSpec

SPLIT = "test"
REROUTED = "re-routed"
# Guesses of one core, for the order of the queue and the bar's weights only.
_SECONDS: dict[StageName, float] = {
    "build_tasks": 30.0,
    "tasks": 60.0,
    "probe": 30.0,
    "routing": 15.0,
    "latency": 60.0,
}


def suites_of(resolved: ResolvedAblation) -> tuple[Suite, ...]:
    """Return the suites that an ablation asks, with their tasks.

    Raises:
        SpecError: one is not there or has problems.
    """
    names = resolved.ablation.evaluate.suites
    return tuple(read_suite(suite_reference(name, resolved.path)) for name in names)


def asked_once(suites: Sequence[Suite]) -> tuple[Asked, ...]:
    """Return every task that some suite asks, once."""
    return tuple({asked.name: asked for suite in suites for asked in suite.asked}.values())


def tasks_stages(
    asked: Sequence[Asked], corpus: Stage, corpus_digest: str
) -> tuple[Stage | None, dict[str, Any]]:
    """Return the stage that builds the documents of tasks of ours, and what their scores are of.

    The stage is None where all tasks are lm-evaluation-harness's own.
    """
    spec = {"asked": [_identity(one) for one in asked]}
    own = [one.task for one in asked if isinstance(one.task, TaskSpec)]
    if not own:
        return None, spec
    building: dict[str, Any] = {"tasks": [plain(task) for task in own]}
    if any(isinstance(task.documents, Continuation | LastWord | NextLine) for task in own):
        building["corpus_digest"] = corpus_digest
    stage = _stage("build_tasks", "build tasks", building, {"corpus": corpus.fingerprint}, "tasks")
    return stage, spec


def scored_by_tasks(
    resolved: ResolvedAblation, model: Stage, tokenizer: str, documents: Stage | None, spec: Any
) -> Iterator[Stage]:
    """Yield the stages in which a model answers tasks (`tasks_stages` gives the last two)."""
    inputs = {"model": model.fingerprint, "tokenizer": tokenizer}
    if documents is not None:
        inputs["documents"] = documents.fingerprint
    threads = resolved.scale.evaluation.threads
    spec = {**spec, "threads": threads}
    yield _of_model("tasks", f"tasks {model.label}", spec, inputs, model)
    method = resolved.arms[model.arm] if model.role == "arm" and model.arm else None
    if resolved.ablation.evaluate.rerouted and method and segment_lens_of([method]):
        label = f"tasks {REROUTED} {model.label}"
        yield _of_model("tasks", label, spec | {"rule": "segment"}, inputs, model)


def of_arm(resolved: ResolvedAblation, model: Stage, tokenizer: str) -> Iterator[Stage]:
    """Yield the stages that measure routing and probe one arm."""
    asked, size = resolved.ablation.evaluate, resolved.scale.evaluation
    inputs = {"model": model.fingerprint, "tokenizer": tokenizer}
    common = {
        "domains": resolved.domains,
        "split": SPLIT,
        "seq_len": resolved.model.max_seq_len,
        "threads": size.threads,
    }
    method = resolved.arms[model.arm or ""]
    if asked.routing and is_mixture(method) and not isinstance(method, BTMMethod):
        spec = common | {
            "max_tokens": size.tokens_per_domain,
            "batch_sequences": resolved.scale.phases.mixture.batch_sequences,
            "experts": list(mixed(resolved, method)),
            "general": resolved.corpus.general,
        }
        yield _of_model("routing", f"routing {model.label}", spec, inputs, model)
    for probe in asked.probes:
        spec = common | {"probe": plain(probe), "max_tokens": size.tokens_per_domain}
        if probe.by_segments:
            spec["segment_lens"] = list(segment_lens_of(resolved.arms.values()))
        label = f"probe {probe.probe} {model.label}"
        yield _of_model("probe", label, spec, inputs, model)


def latency_stage(resolved: ResolvedAblation) -> Stage | None:
    """Return the stage that times the arms of one setting in turn; None where none is asked for."""
    load = resolved.ablation.evaluate.latency
    if load is None:
        return None
    # An ensemble has no shape of its own.
    arms = {arm: m for arm, m in resolved.arms.items() if not isinstance(m, BTMMethod)}
    timed = []
    for method in arms.values():
        identity = plain(method)
        for label in ("experts", "branch"):
            identity.pop(label, None)
        experts = model_of(resolved, method).num_experts
        timed.append({"method": identity, "num_experts": experts})
    spec = {
        "model": plain(resolved.model),
        "models": timed,
        "load": plain(load),
        "threads": resolved.scale.phases.mixture.threads,
    }
    # Known by their place, so that another ablation with the same models has the same stage.
    return _stage(
        "latency", "latency", spec, {}, "latency", alone=True, settings={"arms": list(arms)}
    )


def _identity(asked: Asked) -> dict[str, Any]:
    """Return what a task's scores hang on; titles and sources do not change them."""
    task = plain(asked.task)
    for words in ("title", "source", "licence", "group", "schema"):
        task.pop(words, None)
    return {"name": asked.name, "shots": asked.shots, "task": task}


def _of_model(
    name: StageName, label: str, spec: dict[str, Any], inputs: dict[str, str], model: Stage
) -> Stage:
    return _stage(
        name,
        label,
        spec,
        inputs,
        model.role,
        arm=model.arm,
        replicate=model.replicate,
        domain=model.domain,
    )


def _stage(
    name: StageName,
    label: str,
    spec: dict[str, Any],
    inputs: dict[str, str],
    role: str,
    **facts: Any,
) -> Stage:
    known = {} if name == "build_tasks" else inputs  # the corpus's digest says what was read
    return Stage(
        name=name,
        label=label,
        spec=spec,
        inputs=inputs,
        fingerprint=identify(name, spec, known),
        threads=spec.get("threads", 1),
        seconds=_SECONDS[name],
        role=role,
        **facts,
    )
