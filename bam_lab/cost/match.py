"""Turn a match mode into optimizer steps, so that arms are equal in what the spec says.

`tokens`: every arm takes the baseline's steps, so the same batches in the same order. `flops`:
every arm takes the steps whose model training FLOPs come nearest to the baseline's, over the
mixture phase or over the arm's whole lineage (seed model, the branches it uses, mixture phase).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from bam_lab.cost.flops import FlopCount, per_token
from bam_lab.cost.params import ParamCount, count
from bam_lab.errors import SpecError
from bam_lab.spec.experts import experts_of, sources_of
from bam_lab.spec.load import ResolvedAblation
from bam_lab.spec.methods import DenseMethod, MethodSpec
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.recipe import SEED_MODEL
from bam_lab.spec.scale import PhaseSize

TOLERANCE = 0.005
DENSE = DenseMethod(method="dense")


@dataclass(frozen=True)
class PhaseBudget:
    """Hold what one training stage spends."""

    steps: int
    tokens: int
    params: ParamCount
    flops: FlopCount
    training_flops: int
    executed_flops: int


@dataclass(frozen=True)
class ArmBudget(PhaseBudget):
    """Hold an arm's mixture phase and how it compares.

    Attributes:
        lineage_flops: model training FLOPs of seed model, used branches and mixture phase.
        flops_ratio: mixture-phase model training FLOPs over the baseline's.
        match_ratio: the matched quantity over the baseline's.
        matched: whether that is within `TOLERANCE`, or within one optimizer step of this arm.
    """

    lineage_flops: int
    flops_ratio: float
    match_ratio: float
    matched: bool


def solve(resolved: ResolvedAblation) -> dict[str, ArmBudget]:
    """Return every arm's mixture-phase budget.

    Raises:
        SpecError: an arm's branches alone cost more than the baseline's whole lineage.
    """
    match = resolved.ablation.match
    baseline = resolved.arms[resolved.ablation.baseline]
    steps = _steps_of(resolved.scale.phases.mixture, resolved.model)
    target = _mixture(resolved, baseline, steps)
    goal = target.training_flops + _before(resolved, baseline)
    budgets: dict[str, ArmBudget] = {}
    problems: list[str] = []
    for arm, method in resolved.arms.items():
        step_flops = _mixture(resolved, method, 1).training_flops
        left = goal - _before(resolved, method)
        wanted = steps if match.on == "tokens" else round(left / step_flops)
        if wanted < 1:
            problems.append(
                f"{resolved.path}: match.phase must leave arm {arm} a mixture phase, but its "
                "branches cost the baseline's whole budget. Use phase: mixture or more tokens."
            )
            continue
        warmup = resolved.scale.phases.mixture.warmup_steps
        if wanted <= warmup:
            problems.append(
                f"{resolved.path}: arms.{arm} must train longer than warmup_steps {warmup}, the "
                f"match leaves it {wanted} steps. Raise the mixture phase's tokens."
            )
            continue
        spent = _mixture(resolved, method, wanted)
        if match.on == "tokens":
            mine, theirs, step = spent.tokens, target.tokens, spent.tokens // wanted
        else:
            mine, theirs, step = _before(resolved, method) + spent.training_flops, goal, step_flops
        budgets[arm] = ArmBudget(
            **vars(spent),
            lineage_flops=_lineage(resolved, method) + spent.training_flops,
            flops_ratio=spent.training_flops / target.training_flops,
            match_ratio=mine / theirs,
            matched=abs(mine - theirs) <= max(TOLERANCE * theirs, step),
        )
    if problems:
        raise SpecError(problems)
    return budgets


def seed_budget(resolved: ResolvedAblation) -> PhaseBudget:
    """Return what the seed model's training spends."""
    size = resolved.scale.phases.seed_model
    return _budget(resolved.model, DENSE, 1, size, _steps_of(size, resolved.model))


def expert_budget(resolved: ResolvedAblation) -> PhaseBudget:
    """Return what one branch's training spends."""
    size = resolved.scale.phases.expert
    return _budget(resolved.model, DENSE, 1, size, _steps_of(size, resolved.model))


def used_branches(resolved: ResolvedAblation, arms: Iterable[str]) -> tuple[str, ...]:
    """Return the branches that any of the arms needs, each once, in the order of their use."""
    names = (name for arm in arms for name in sources(resolved, resolved.arms[arm]))
    return tuple(dict.fromkeys(name for name in names if name != SEED_MODEL))


def num_experts(resolved: ResolvedAblation, method: MethodSpec) -> int:
    """Return how many dense experts an arm mixes; 1 for a dense arm, the seed model."""
    return len(mixed(resolved, method))


def mixed(resolved: ResolvedAblation, method: MethodSpec) -> tuple[str, ...]:
    """Return the dense model behind each of an arm's experts, in router-column order."""
    return experts_of(method, resolved.recipe.mixture.experts)


def sources(resolved: ResolvedAblation, method: MethodSpec) -> tuple[str, ...]:
    """Return the dense models that an arm reads."""
    return sources_of(method, resolved.recipe.mixture.experts)


def _before(resolved: ResolvedAblation, method: MethodSpec) -> int:
    """Return the FLOPs before the mixture phase that the match counts."""
    return _lineage(resolved, method) if resolved.ablation.match.phase == "all" else 0


def _lineage(resolved: ResolvedAblation, method: MethodSpec) -> int:
    branches = {name for name in sources(resolved, method) if name != SEED_MODEL}
    seed = seed_budget(resolved).training_flops
    return seed + len(branches) * expert_budget(resolved).training_flops


def _mixture(resolved: ResolvedAblation, method: MethodSpec, steps: int) -> PhaseBudget:
    size = resolved.scale.phases.mixture
    return _budget(resolved.model, method, num_experts(resolved, method), size, steps)


def _budget(
    model: ModelSpec, method: MethodSpec, experts: int, size: PhaseSize, steps: int
) -> PhaseBudget:
    flops = per_token(model, method, experts, model.max_seq_len)
    tokens = steps * size.batch_sequences * model.max_seq_len
    return PhaseBudget(
        steps=steps,
        tokens=tokens,
        params=count(model, method, experts),
        flops=flops,
        training_flops=tokens * flops.model_training,
        executed_flops=tokens * flops.executed_training,
    )


def _steps_of(size: PhaseSize, model: ModelSpec) -> int:
    return max(round(size.tokens / (size.batch_sequences * model.max_seq_len)), 1)
