"""Turn an ablation into the graph of stages that answers it.

    corpus -> tokenizer -> seed_model -> expert (one a domain) -> upcycle -> mixture -> evaluate

A replicate redoes what its spec says (`from: mixture | branch | seed`) under `rng_seed` = its
number; everything else is shared. The corpus is addressed by its content, so until it is built the
fingerprints after it are not known (`Graph.known` is False, and its keys mean nothing).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from bam_lab.cost.match import (
    ArmBudget,
    PhaseBudget,
    expert_budget,
    mixed,
    seed_budget,
    solve,
    used_branches,
)
from bam_lab.data.files import inputs_digest
from bam_lab.errors import SpecError
from bam_lab.record.stages import StageName
from bam_lab.run.stage import Graph, Stage, identify, plain
from bam_lab.spec.corpus import CorpusSpec, identity
from bam_lab.spec.load import ResolvedAblation
from bam_lab.spec.methods import is_mixture
from bam_lab.spec.recipe import SEED_MODEL
from bam_lab.spec.scale import PhaseSize

UNKNOWN_DIGEST = "known after the corpus is built"
SPLITS = ("valid", "test")
# Guesses of one core, for the order of the queue and the bar's weights only.
_FLOPS_A_SECOND = 2e10
_CORPUS_SECONDS, _TOKENIZER_SECONDS, _UPCYCLE_SECONDS = 120.0, 30.0, 3.0


@dataclass
class _Builder:
    """Collect the stages of one ablation."""

    resolved: ResolvedAblation
    stages: dict[str, Stage]

    def add(self, stage: Stage) -> str:
        """Keep the stage unless the same work is there already; return its fingerprint."""
        return self.stages.setdefault(stage.fingerprint, stage).fingerprint


def build_graph(resolved: ResolvedAblation, replicates: int, corpus_digest: str | None) -> Graph:
    """Return the graph of an ablation.

    Args:
        resolved: the checked ablation.
        replicates: how many times the arms are trained.
        corpus_digest: digest of the corpus's content; None before it is built.

    Raises:
        SpecError: two arms are the same run, or the match cannot be solved.
    """
    budgets = solve(resolved)
    corpus = corpus_stage(resolved.corpus)
    builder = _Builder(resolved, {corpus.fingerprint: corpus})
    tokenizer = _add_tokenizer(builder, corpus, corpus_digest or UNKNOWN_DIGEST)
    for number in range(replicates):
        seed_model = _add_seed_model(builder, tokenizer, number)
        experts = {SEED_MODEL: seed_model}
        for domain in used_branches(resolved, resolved.arms):
            experts[domain] = _add_expert(builder, tokenizer, seed_model, domain, number)
        _add_arms(builder, budgets, tokenizer, experts, number)
    return Graph(builder.stages, corpus_digest is not None, corpus)


def corpus_stage(corpus: CorpusSpec) -> Stage:
    """Return the stage that builds the corpus; it changes when a local text file does."""
    spec = {"corpus": identity(corpus), "files": inputs_digest(corpus)}
    return Stage(
        name="corpus",
        label="corpus",
        spec=spec,
        inputs={},
        fingerprint=identify("corpus", spec, {}),
        threads=1,
        seconds=_CORPUS_SECONDS,
        role="corpus",
        # Where local files lie is needed to read them, and is no part of what they are.
        settings={"corpus": corpus.model_dump(mode="json", by_alias=True)},
    )


def _add_tokenizer(builder: _Builder, corpus: Stage, digest: str) -> str:
    spec = {"vocab_size": builder.resolved.model.vocab_size, "corpus_digest": digest}
    return builder.add(
        Stage(
            name="tokenizer",
            label="tokenizer",
            spec=spec,
            inputs={"corpus": corpus.fingerprint},
            # By the corpus's content, not by how it was made.
            fingerprint=identify("tokenizer", spec, {}),
            threads=1,
            seconds=_TOKENIZER_SECONDS,
            role="tokenizer",
        )
    )


def _add_seed_model(builder: _Builder, tokenizer: str, number: int) -> str:
    resolved = builder.resolved
    redone = resolved.ablation.replicates.from_ == "seed"
    stage = _training(
        resolved,
        "seed_model",
        size=resolved.scale.phases.seed_model,
        budget=seed_budget(resolved),
        inputs={"tokenizer": tokenizer},
        details={"mix": resolved.recipe.seed_model.mix, "method": {"method": "dense"}},
        rng_seed=number if redone else 0,
    )
    stage = _named(stage, SEED_MODEL, replicate=number if redone else None)
    fingerprint = builder.add(stage)
    _add_evaluation(builder, stage, tokenizer, "seed_model")
    return fingerprint


def _add_expert(
    builder: _Builder, tokenizer: str, seed_model: str, domain: str, number: int
) -> str:
    resolved, recipe = builder.resolved, builder.resolved.recipe
    redone = resolved.ablation.replicates.from_ != "mixture"
    share = 0.0 if domain == recipe.general else recipe.expert.general_share
    mix = {domain: 1.0 - share} | ({recipe.general: share} if share else {})
    stage = _training(
        resolved,
        "expert",
        size=resolved.scale.phases.expert,
        budget=expert_budget(resolved),
        inputs={"seed_model": seed_model, "tokenizer": tokenizer},
        details={"mix": mix, "method": {"method": "dense"}},
        rng_seed=number if redone else 0,
    )
    stage = _named(
        replace(stage, domain=domain), f"expert {domain}", replicate=number if redone else None
    )
    fingerprint = builder.add(stage)
    _add_evaluation(builder, stage, tokenizer, "expert")
    return fingerprint


def _add_arms(
    builder: _Builder,
    budgets: dict[str, ArmBudget],
    tokenizer: str,
    experts: dict[str, str],
    number: int,
) -> None:
    resolved = builder.resolved
    problems = []
    taken: dict[str, str] = {}
    for arm, budget in budgets.items():
        stage = _mixture(builder, arm, budget, tokenizer, experts, number)
        if stage.fingerprint in taken:
            problems.append(
                f"{resolved.path}: arms.{arm} must differ from arms.{taken[stage.fingerprint]}, "
                "got the same run twice. Change one of them or take it out."
            )
            continue
        taken[stage.fingerprint] = arm
        builder.add(stage)
        _add_evaluation(builder, stage, tokenizer, "arm")
    if problems:
        raise SpecError(problems)


def _mixture(
    builder: _Builder,
    arm: str,
    budget: ArmBudget,
    tokenizer: str,
    experts: dict[str, str],
    number: int,
) -> Stage:
    """Return an arm's mixture phase; its upcycling and step-0 evaluation are added on the way."""
    resolved, method = builder.resolved, builder.resolved.arms[arm]
    inputs = {"tokenizer": tokenizer}
    # The names of the experts are labels; the inputs and their order say what they are.
    details: dict[str, Any] = {"method": plain(method), "mix": resolved.recipe.mixture.mix}
    details["method"].pop("experts", None)
    if is_mixture(method):
        names = mixed(resolved, method)
        upcycle = _named(
            _upcycle(resolved, details["method"], names, experts, tokenizer, number),
            f"upcycle {arm}",
            arm=arm,
            replicate=number,
        )
        builder.add(upcycle)
        _add_evaluation(builder, upcycle, tokenizer, "step-0")
        inputs["upcycle"] = upcycle.fingerprint
    else:
        inputs["seed_model"] = experts[SEED_MODEL]
    stage = _training(
        resolved,
        "mixture",
        size=resolved.scale.phases.mixture,
        budget=budget,
        inputs=inputs,
        details=details,
        rng_seed=number,
    )
    return _named(stage, f"mixture {arm}", arm=arm, replicate=number)


def _upcycle(
    resolved: ResolvedAblation,
    method: dict[str, Any],
    names: tuple[str, ...],
    experts: dict[str, str],
    tokenizer: str,
    number: int,
) -> Stage:
    inputs = {f"expert{i}": experts[name] for i, name in enumerate(names)}
    inputs["tokenizer"] = tokenizer
    spec = {"model": plain(resolved.model), "method": method, "rng_seed": number}
    return Stage(
        name="upcycle",
        label="upcycle",
        spec=spec,
        inputs=inputs,
        fingerprint=identify("upcycle", spec, inputs),
        threads=resolved.scale.phases.mixture.threads,
        seconds=_UPCYCLE_SECONDS,
        role="upcycle",
        settings={"experts": list(names), "domains": domains(resolved)},
    )


def _training(
    resolved: ResolvedAblation,
    name: StageName,
    *,
    size: PhaseSize,
    budget: PhaseBudget,
    inputs: dict[str, str],
    details: dict[str, Any],
    rng_seed: int,
) -> Stage:
    """Return a training stage of `budget.steps` steps."""
    sizes = plain(size)
    del sizes["tokens"]  # the steps say it
    spec = {
        "model": plain(resolved.model),
        "optimizer": plain(resolved.scale.optimizer),
        "size": sizes,
        "steps": budget.steps,
        "rng_seed": rng_seed,
        **plain(details),
    }
    return Stage(
        name=name,
        label=name,
        spec=spec,
        inputs=inputs,
        fingerprint=identify(name, spec, inputs),
        threads=size.threads,
        seconds=budget.training_flops / _FLOPS_A_SECOND / size.threads,
        role=name,
        settings={
            "checkpoint_every": resolved.scale.checkpoint_every,
            "domains": domains(resolved),
            "budget": {
                "training_flops": budget.training_flops,
                "executed_flops": budget.executed_flops,
                "params_total": budget.params.total,
                "params_active": budget.params.active,
            },
        },
    )


def _add_evaluation(builder: _Builder, model: Stage, tokenizer: str, role: str) -> None:
    resolved = builder.resolved
    size = resolved.scale.evaluation
    spec = {
        "model": plain(resolved.model),
        "tokens_per_domain": size.tokens_per_domain,
        "domains": domains(resolved),
        "splits": list(SPLITS),
        "threads": size.threads,
    }
    inputs = {"model": model.fingerprint, "tokenizer": tokenizer}
    read = size.tokens_per_domain * len(domains(resolved)) * len(SPLITS)
    budget = seed_budget(resolved)
    seconds = budget.flops.model_forward * read / _FLOPS_A_SECOND / size.threads
    builder.add(
        Stage(
            name="evaluate",
            label=f"evaluate {model.label}",
            spec=spec,
            inputs=inputs,
            fingerprint=identify("evaluate", spec, inputs),
            threads=size.threads,
            seconds=seconds,
            role=role,
            arm=model.arm,
            replicate=model.replicate,
            domain=model.domain,
        )
    )


def _named(stage: Stage, label: str, *, replicate: int | None, arm: str | None = None) -> Stage:
    text = label if replicate is None else f"{label} r{replicate}"
    return replace(stage, label=text, arm=arm, replicate=replicate)


def domains(resolved: ResolvedAblation) -> list[str]:
    """Return every domain that the recipe reads, the general one first; all are evaluated."""
    recipe = resolved.recipe
    names: Iterable[str] = [
        recipe.general,
        *recipe.seed_model.mix,
        *recipe.expert.domains,
        *recipe.mixture.mix,
    ]
    return list(dict.fromkeys(names))
