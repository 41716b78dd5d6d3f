"""Turn an ablation into the graph of stages that answers it.

    corpus -> tokenizer -> seed_model -> expert (one a domain) -> upcycle -> mixture -> evaluate

Beside `evaluate` stands what the ablation asks to be measured of its models (`evaluations.py`).

An arm without a mixture phase is evaluated as its upcycling leaves it; a mixture phase of two parts
has a second upcycling between them; a model that starts anew needs no seed model. Where documents
are read in the order of their similarity, `order` stands between tokenizer and training.
A replicate redoes what its spec says (`from: mixture | branch | seed`) under `rng_seed` = its
number; everything else is shared. The corpus is addressed by its content, so until it is built the
fingerprints after it are not known (`Graph.known` is False, and its keys mean nothing).
"""

from dataclasses import dataclass, field, replace
from typing import Any

from bam_lab.cost.match import (
    ArmBudget,
    PhaseBudget,
    branches,
    expert_budget,
    phase_of,
    seed_budget,
    settled,
    solve,
    used_branches,
)
from bam_lab.errors import SpecError
from bam_lab.run.calibration import calibration_stage, is_known
from bam_lab.run.evaluations import (
    asked_once,
    latency_stage,
    of_arm,
    scored_by_tasks,
    suites_of,
    tasks_stages,
)
from bam_lab.run.stage import Graph, Stage, plain
from bam_lab.run.stage_specs import (
    conversion_stage,
    corpus_stage,
    evaluation_stage,
    mix_of,
    named,
    order_stage,
    pool_problem,
    pools_of,
    tokenizer_stage,
    training_stage,
    upcycle_stage,
)
from bam_lab.run.stretches import StableRuns, Stretch, continuing, portion
from bam_lab.spec.branches import Branch
from bam_lab.spec.data import DataSpec, Similar
from bam_lab.spec.experts import built, is_trained, parts_of, starts_anew
from bam_lab.spec.methods import AverageMethod, BTMMethod, DenseMethod, MethodSpec
from bam_lab.spec.recipe import SEED_MODEL, data_of
from bam_lab.spec.resolved import ResolvedAblation
from bam_lab.spec.scale import PhaseSize

SEED = Branch(SEED_MODEL)
UNKNOWN_DIGEST = "known after the corpus is built"


@dataclass
class _Builder:
    """Collect the stages of one ablation."""

    resolved: ResolvedAblation
    stages: dict[str, Stage]
    again: list[Stage] = field(default_factory=list)
    settings: dict[str, dict[str, None]] = field(default_factory=dict)
    stable: StableRuns = field(default_factory=StableRuns)
    tasks: tuple[Stage | None, dict[str, Any]] | None = None

    def add(self, stage: Stage) -> str:
        """Keep the stage unless the same work is there already; return its fingerprint."""
        setting = self.resolved.setting
        self.settings.setdefault(stage.fingerprint, {})[setting] = None
        if setting and stage.arm is None:  # else its arm says the setting
            others = (s for s in self.stages.values() if s.fingerprint != stage.fingerprint)
            if any(other.label == stage.label for other in others):
                number = "" if stage.replicate is None else f" r{stage.replicate}"
                label = f"{stage.label.removesuffix(number)} @{setting}{number}"
                stage = replace(stage, label=label)
        kept = self.stages.setdefault(stage.fingerprint, stage)
        if stage.arm not in (None, kept.arm):
            self.again.append(stage)
        return kept.fingerprint

    def measure(self, model: Stage, tokenizer: str, role: str) -> None:
        """Add the stages that score the model which `model` leaves."""
        self.add(evaluation_stage(self.resolved, model, tokenizer, role))
        asked, model = self.resolved.ablation.evaluate, replace(model, role=role)
        if self.tasks and (role == "arm" or (asked.experts and role in ("seed_model", "expert"))):
            for stage in scored_by_tasks(self.resolved, model, tokenizer, *self.tasks):
                self.add(stage)
        if role == "arm":
            for stage in of_arm(self.resolved, model, tokenizer):
                self.add(stage)

    def ask(self, corpus: Stage, digest: str) -> None:
        """Add the stage that builds the tasks of the setting's suites."""
        asked = asked_once(suites_of(self.resolved))
        self.tasks = tasks_stages(asked, corpus, digest) if asked else None
        if self.tasks and self.tasks[0]:
            self.add(self.tasks[0])


def build_graph(resolved: ResolvedAblation, replicates: int, corpus_digest: str | None) -> Graph:
    """Return the graph of an ablation.

    Args:
        resolved: the checked ablation.
        replicates: how many times the arms are trained.
        corpus_digest: digest of the corpus's content; None before it is built.

    Raises:
        SpecError: two arms are the same run, or the match cannot be solved.
    """
    corpus = corpus_stage(resolved.corpus)
    builder = _Builder(resolved, {corpus.fingerprint: corpus})
    for _, child in resolved.settings:
        builder.resolved = child
        if stage := calibration_stage(child):
            builder.add(stage)
    resolved = settled(resolved)
    budgets = solve(resolved)
    for _, child in resolved.settings:
        builder.resolved = child
        own = {arm: budgets[arm] for arm in child.arms}
        _add_setting(builder, own, corpus, replicates, corpus_digest or UNKNOWN_DIGEST)
    known = corpus_digest is not None and is_known(resolved)
    used = {key: tuple(names) for key, names in builder.settings.items() if "" not in names}
    return Graph(builder.stages, known, corpus, tuple(builder.again), used)


def _add_setting(
    builder: _Builder, budgets: dict[str, ArmBudget], corpus: Stage, replicates: int, digest: str
) -> None:
    """Add what one setting needs; stages that an earlier one has are shared."""
    resolved = builder.resolved
    tokenizer = builder.add(tokenizer_stage(corpus, resolved.model.vocab_size, digest))
    builder.ask(corpus, digest)
    if stage := latency_stage(resolved):
        builder.add(stage)
    for number in range(replicates):
        experts: dict[Branch, str] = {}
        if any(not starts_anew(method) for method in resolved.arms.values()):
            experts[SEED] = _add_seed_model(builder, tokenizer, number)
        for branch in used_branches(resolved, resolved.arms):
            experts[branch] = _add_expert(builder, tokenizer, experts[SEED], branch, number)
        _add_arms(builder, budgets, tokenizer, experts, number)


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
    builder.measure(stage, tokenizer, "seed_model")
    return fingerprint


def _add_expert(
    builder: _Builder, tokenizer: str, seed_model: str, branch: Branch, number: int
) -> str:
    resolved = builder.resolved
    redone = resolved.ablation.replicates.from_ != "mixture"
    size, budget = resolved.scale.phases.expert, expert_budget(resolved, branch.how)
    data = data_of(resolved.recipe, branch.data)
    mix = mix_of(resolved.corpus.general, branch.name, data)
    text, order = _text(builder, f"branch {branch.label}", tokenizer, mix, data, size, budget)
    details: dict[str, Any] = {**text, "method": {"method": "dense"}}
    if branch.how is not None:
        details["lora"] = plain(branch.how.lora)
    stage = training_stage(
        resolved,
        "expert",
        size=size,
        budget=budget,
        inputs={"seed_model": seed_model, "tokenizer": tokenizer, **order},
        details=details,
        rng_seed=number if redone else 0,
    )
    stage = named(
        replace(stage, domain=branch.label),
        f"expert {branch.label}",
        replicate=number if redone else None,
    )
    fingerprint = builder.add(stage)
    builder.measure(stage, tokenizer, "expert")
    return fingerprint


def _add_arms(
    builder: _Builder,
    budgets: dict[str, ArmBudget],
    tokenizer: str,
    experts: dict[Branch, str],
    number: int,
) -> None:
    resolved = builder.resolved
    problems = []
    taken: dict[str, str] = {}
    for arm, budget in budgets.items():
        stage = _arm(builder, arm, budget, tokenizer, experts, number)
        if stage.fingerprint in taken:
            text = f"must differ from arms.{taken[stage.fingerprint]}, got the same run twice."
            text = f"{text} Change one of them or take it out."
            problems.append(resolved.problem(("arms", arm), text))
            continue
        taken[stage.fingerprint] = arm
        builder.add(stage)
        builder.measure(stage, tokenizer, "arm")
    if problems:
        raise SpecError(problems)


def _arm(
    builder: _Builder,
    arm: str,
    budget: ArmBudget,
    tokenizer: str,
    experts: dict[Branch, str],
    number: int,
) -> Stage:
    """Return the stage that leaves an arm's model; those before it are added on the way."""
    resolved, method = builder.resolved, builder.resolved.arms[arm]
    inputs = {"tokenizer": tokenizer}
    if not isinstance(method, DenseMethod):
        upcycle = _upcycle(builder, arm, tokenizer, experts, number)
        builder.add(upcycle)
        if not is_trained(method):
            return upcycle
        builder.measure(upcycle, tokenizer, "step-0")
        inputs["upcycle"] = upcycle.fingerprint
    elif not starts_anew(method):
        inputs["seed_model"] = experts[SEED]
    parts = list(zip(parts_of(method), budget.parts, strict=True))
    batch, data = {"batch_sequences": budget.batch_sequences}, resolved.reads(arm)
    size = phase_of(resolved, method).model_copy(update=batch)
    for index, (part, spent) in enumerate(parts):
        text, order = _text(builder, f"arms.{arm}", tokenizer, data.mix or {}, data, size, spent)
        details = {"method": _identity(part), **text}
        alone = len(parts) == 1
        stage = _phase(builder, arm, size, spent, {**inputs, **order}, details, number, alone)
        if index == len(parts) - 1:
            break
        label = f"mixture {arm} ({part.method})"
        stage = replace(named(stage, label, arm=arm, replicate=number), role="first part")
        builder.add(stage)
        following = _identity(parts[index + 1][0])
        conversion = conversion_stage(resolved, following, stage, tokenizer, number)
        conversion = named(conversion, f"convert {arm}", arm=arm, replicate=number)
        inputs = {"tokenizer": tokenizer, "upcycle": builder.add(conversion)}
    return named(stage, f"mixture {arm}", arm=arm, replicate=number)


def _phase(
    builder: _Builder,
    arm: str,
    size: PhaseSize,
    spent: PhaseBudget,
    inputs: dict[str, str],
    details: dict[str, Any],
    number: int,
    alone: bool,
) -> Stage:
    """Return the stage that ends a mixture phase, or a part of one that is not alone.

    A stable run before it is added, in the pieces that phases of other lengths share.
    """

    def made(stretch: Stretch, further: dict[str, str]) -> Stage:
        return training_stage(
            builder.resolved,
            "mixture",
            size=size,
            budget=portion(spent, stretch.last - stretch.first),
            inputs={**inputs, **further},
            details=details,
            rng_seed=number,
            stretch=stretch,
        )

    decay = size.decay_steps(spent.steps)
    if decay is None or not alone:
        return made(Stretch(0, spent.steps, decay), {})
    pieces = builder.stable.up_to(spent.steps - decay, made)
    for piece in pieces:
        builder.add(named(piece, f"mixture {arm}, {piece.role}", arm=arm, replicate=number))
    return made(Stretch(spent.steps - decay, spent.steps, decay), continuing(pieces[-1]))


def _upcycle(
    builder: _Builder, arm: str, tokenizer: str, experts: dict[Branch, str], number: int
) -> Stage:
    resolved, method = builder.resolved, builder.resolved.arms[arm]
    read = branches(resolved, arm)
    details = {"method": _identity(built(method))}
    if isinstance(method, AverageMethod) and method.weights:
        weights = [method.weights[branch.name] for branch in read]
        details["method"]["weights"] = {str(i): weight for i, weight in enumerate(weights)}
    if isinstance(method, BTMMethod):
        texts = [resolved.recipe.seed_model.mix if b == SEED else {b.name: 1.0} for b in read]
        details["texts"] = plain(texts)
    sources = [(branch.label, experts[branch]) for branch in read]
    stage = upcycle_stage(resolved, details, sources, tokenizer, number)
    return named(stage, f"upcycle {arm}", arm=arm, replicate=number)


def _text(
    builder: _Builder,
    place: str,
    tokenizer: str,
    mix: dict[str, float],
    data: DataSpec,
    size: PhaseSize,
    budget: PhaseBudget,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what a training stage reads: its part of the stage's spec, and of its inputs.

    Raises:
        SpecError: it needs more general text than the corpus can have.
    """
    resolved, sequences = builder.resolved, budget.steps * size.batch_sequences
    spec: dict[str, Any] = {"mix": mix}
    if pools := pools_of(mix, resolved.corpus.general, data.general_repeats, sequences):
        spec["pools"] = pools
        if problem := pool_problem(resolved, place, pools):
            raise SpecError(problem)
    if isinstance(data.order, Similar):
        return spec, {"order": builder.add(order_stage(builder.stages[tokenizer], data.order))}
    return spec, {}


def _identity(method: MethodSpec) -> dict[str, Any]:
    """Return a method as it enters fingerprints.

    The names of the experts are labels; the inputs and their order say what they are.
    """
    found: dict[str, Any] = plain(method)
    for label in ("experts", "branch"):
        found.pop(label, None)
    return found
