"""Turn an ablation into the graph of stages that answers it.

    corpus -> tokenizer -> seed_model -> expert (one a domain) -> upcycle -> mixture -> evaluate

A replicate redoes what its spec says (`from: mixture | branch | seed`) under `rng_seed` = its
number; everything else is shared. The corpus is addressed by its content, so until it is built the
fingerprints after it are not known (`Graph.known` is False, and its keys mean nothing).
"""

from dataclasses import dataclass, replace
from typing import Any

from bam_lab.cost.match import ArmBudget, expert_budget, seed_budget, solve, sources, used_branches
from bam_lab.errors import SpecError
from bam_lab.run.stage import Graph, Stage, plain
from bam_lab.run.stage_specs import (
    corpus_stage,
    evaluation_stage,
    named,
    tokenizer_stage,
    training_stage,
    upcycle_stage,
)
from bam_lab.spec.experts import is_mixture
from bam_lab.spec.load import ResolvedAblation
from bam_lab.spec.recipe import SEED_MODEL

UNKNOWN_DIGEST = "known after the corpus is built"


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
    digest = corpus_digest or UNKNOWN_DIGEST
    tokenizer = builder.add(tokenizer_stage(corpus, resolved.model.vocab_size, digest))
    for number in range(replicates):
        seed_model = _add_seed_model(builder, tokenizer, number)
        experts = {SEED_MODEL: seed_model}
        for domain in used_branches(resolved, resolved.arms):
            experts[domain] = _add_expert(builder, tokenizer, seed_model, domain, number)
        _add_arms(builder, budgets, tokenizer, experts, number)
    return Graph(builder.stages, corpus_digest is not None, corpus)


def _add_seed_model(builder: _Builder, tokenizer: str, number: int) -> str:
    resolved = builder.resolved
    redone = resolved.ablation.replicates.from_ == "seed"
    stage = training_stage(
        resolved,
        "seed_model",
        size=resolved.scale.phases.seed_model,
        budget=seed_budget(resolved),
        inputs={"tokenizer": tokenizer},
        details={"mix": resolved.recipe.seed_model.mix, "method": {"method": "dense"}},
        rng_seed=number if redone else 0,
    )
    stage = named(stage, SEED_MODEL, replicate=number if redone else None)
    fingerprint = builder.add(stage)
    builder.add(evaluation_stage(resolved, stage, tokenizer, "seed_model"))
    return fingerprint


def _add_expert(
    builder: _Builder, tokenizer: str, seed_model: str, domain: str, number: int
) -> str:
    resolved, recipe = builder.resolved, builder.resolved.recipe
    redone = resolved.ablation.replicates.from_ != "mixture"
    share = 0.0 if domain == recipe.general else recipe.expert.general_share
    mix = {domain: 1.0 - share} | ({recipe.general: share} if share else {})
    stage = training_stage(
        resolved,
        "expert",
        size=resolved.scale.phases.expert,
        budget=expert_budget(resolved),
        inputs={"seed_model": seed_model, "tokenizer": tokenizer},
        details={"mix": mix, "method": {"method": "dense"}},
        rng_seed=number if redone else 0,
    )
    stage = named(
        replace(stage, domain=domain), f"expert {domain}", replicate=number if redone else None
    )
    fingerprint = builder.add(stage)
    builder.add(evaluation_stage(resolved, stage, tokenizer, "expert"))
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
        builder.add(evaluation_stage(resolved, stage, tokenizer, "arm"))
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
        names = sources(resolved, method)
        upcycle = named(
            upcycle_stage(resolved, details["method"], names, experts, tokenizer, number),
            f"upcycle {arm}",
            arm=arm,
            replicate=number,
        )
        builder.add(upcycle)
        builder.add(evaluation_stage(resolved, upcycle, tokenizer, "step-0"))
        inputs["upcycle"] = upcycle.fingerprint
    else:
        inputs["seed_model"] = experts[SEED_MODEL]
    stage = training_stage(
        resolved,
        "mixture",
        size=resolved.scale.phases.mixture,
        budget=budget,
        inputs=inputs,
        details=details,
        rng_seed=number,
    )
    return named(stage, f"mixture {arm}", arm=arm, replicate=number)
