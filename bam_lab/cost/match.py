"""Turn a match mode into optimizer steps, so that arms are equal in what the spec says.

`tokens`: every arm takes the baseline's steps, so the same batches in the same order. `flops`:
every arm takes the steps whose model training FLOPs come nearest to the baseline's, over the
mixture phase or over the arm's whole lineage (seed model, the branches it uses, mixture phase). An
arm that starts anew has no lineage; one without a mixture phase takes no step and is not matched.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bam_lab.cost.flops import FlopCount, per_token
from bam_lab.cost.lora import lora_per_token
from bam_lab.cost.params import ParamCount, count
from bam_lab.cost.sizes import settled
from bam_lab.errors import SpecError
from bam_lab.spec.branches import Branch, BranchSpec, own_data
from bam_lab.spec.data import DataSpec
from bam_lab.spec.experts import experts_of, is_trained, parts_of, sources_of, starts_anew
from bam_lab.spec.load import ResolvedAblation
from bam_lab.spec.methods import (
    BAMMethod,
    BTXMethod,
    DenseMethod,
    LoryToSparseMethod,
    MethodSpec,
)
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
    """Hold an arm's mixture phase, all its parts together, and how it compares.

    `params` and `flops` are those of the model that the arm leaves.

    Attributes:
        parts: what each part of the mixture phase spends; none for an arm that is not trained.
        lineage_flops: model training FLOPs of seed model, used branches and mixture phase.
        flops_ratio: mixture-phase model training FLOPs over the baseline's.
        match_ratio: the matched quantity over the baseline's.
        matched: whether that is within `TOLERANCE`, or within one optimizer step of this arm.
    """

    parts: tuple[PhaseBudget, ...]
    lineage_flops: int
    flops_ratio: float
    match_ratio: float
    matched: bool


def solve(resolved: ResolvedAblation) -> dict[str, ArmBudget]:
    """Return every arm's mixture-phase budget.

    Raises:
        SpecError: an arm's branches alone cost more than the baseline's whole lineage, an arm's
            warm-up would not end, the baseline is not trained, or `match.unmatched` has no effect.
    """
    resolved = settled(resolved)
    match = resolved.ablation.match
    baseline = resolved.arms[resolved.ablation.baseline]
    if not is_trained(baseline):
        raise SpecError(
            f"{resolved.path}: baseline must be an arm with a mixture phase, got "
            f"{baseline.method}. Name a trained arm."
        )
    steps = _steps_of(resolved.scale.phases.mixture, resolved.model)
    target = _parts(resolved, baseline, steps=steps)
    goal = _training_flops(target) + _before(resolved, resolved.ablation.baseline)
    budgets: dict[str, ArmBudget] = {}
    problems: list[str] = []
    for arm, method in resolved.arms.items():
        if match.on == "tokens":
            parts = _parts(resolved, method, steps=steps)
        else:
            parts = _parts(resolved, method, flops=goal - _before(resolved, arm))
        if problem := _problem(resolved, arm, parts):
            problems.append(problem)
        else:
            budgets[arm] = _arm_budget(resolved, arm, parts, target)
    if match.unmatched and not problems and all(budget.matched for budget in budgets.values()):
        problems.append(
            f"{resolved.path}: match.unmatched must not be given where every arm is matched: it "
            "would have no effect. Remove it."
        )
    if problems:
        raise SpecError(problems)
    return budgets


def _parts(
    resolved: ResolvedAblation, method: MethodSpec, *, steps: int = 0, flops: int = 0
) -> tuple[PhaseBudget, ...]:
    """Return the parts of a mixture phase of `steps` steps, or of the steps nearest to `flops`."""
    parts: list[PhaseBudget] = []
    for part, share in zip(parts_of(method), _shares(method), strict=True):
        if steps:
            wanted = share * (steps - sum(done.steps for done in parts))
        else:
            step_flops = _mixture(resolved, method, part, 1).training_flops
            wanted = share * (flops - _training_flops(parts)) / step_flops
        parts.append(_mixture(resolved, method, part, round(wanted)))
    return tuple(parts)


def _shares(method: MethodSpec) -> tuple[float, ...]:
    """Return the share of what is left that each part of the mixture phase gets."""
    if isinstance(method, LoryToSparseMethod):
        return 1 - method.sparse_share, 1.0
    return (1.0,) * len(parts_of(method))


def _problem(resolved: ResolvedAblation, arm: str, parts: Sequence[PhaseBudget]) -> str:
    warmup = phase_of(resolved, resolved.arms[arm]).warmup_steps
    fewest = min((part.steps for part in parts), default=warmup + 1)
    together = sum(part.steps for part in parts)
    if fewest < 1 <= together or (len(parts) > 1 and fewest <= warmup < together):
        return (
            f"{resolved.path}: arms.{arm}.sparse_share must leave each part more steps than "
            f"warmup_steps {warmup}, got {' and '.join(str(part.steps) for part in parts)}. Change "
            "the share or raise the mixture phase's tokens."
        )
    if fewest < 1:
        return (
            f"{resolved.path}: match.phase must leave arm {arm} a mixture phase, but its "
            "branches cost the baseline's whole budget. Use phase: mixture or more tokens."
        )
    if fewest <= warmup:
        return (
            f"{resolved.path}: arms.{arm} must train longer than warmup_steps {warmup}, the "
            f"match leaves it {fewest} steps. Raise the mixture phase's tokens."
        )
    return ""


def _arm_budget(
    resolved: ResolvedAblation,
    arm: str,
    parts: tuple[PhaseBudget, ...],
    target: Sequence[PhaseBudget],
) -> ArmBudget:
    method = resolved.arms[arm]
    last = parts[-1] if parts else _mixture(resolved, method, method, 0)
    tokens, training_flops = sum(part.tokens for part in parts), _training_flops(parts)
    mine, theirs = float(tokens), float(sum(part.tokens for part in target))
    step = last.tokens / max(last.steps, 1)
    if resolved.ablation.match.on == "flops":
        mine = _before(resolved, arm) + training_flops
        theirs = _before(resolved, resolved.ablation.baseline) + _training_flops(target)
        step = last.training_flops / max(last.steps, 1)
    return ArmBudget(
        steps=sum(part.steps for part in parts),
        tokens=tokens,
        params=last.params,
        flops=last.flops,
        training_flops=training_flops,
        executed_flops=sum(part.executed_flops for part in parts),
        parts=parts,
        lineage_flops=_lineage(resolved, arm) + training_flops,
        flops_ratio=training_flops / _training_flops(target),
        match_ratio=mine / theirs,
        matched=bool(parts) and abs(mine - theirs) <= max(TOLERANCE * theirs, step),
    )


def seed_budget(resolved: ResolvedAblation) -> PhaseBudget:
    """Return what the seed model's training spends."""
    size = resolved.scale.phases.seed_model
    return _budget(resolved.model, DENSE, 1, size, _steps_of(size, resolved.model))


def expert_budget(resolved: ResolvedAblation, how: BranchSpec | None = None) -> PhaseBudget:
    """Return what one branch's training spends, in full where `how` is None."""
    size = resolved.scale.phases.expert
    full = _budget(resolved.model, DENSE, 1, size, _steps_of(size, resolved.model))
    if how is None:
        return full
    tokens_a_step = full.tokens // full.steps
    flops = lora_per_token(resolved.model, how.lora, resolved.model.max_seq_len, tokens_a_step)
    steps = full.steps
    if how.equal == "flops":
        steps = round(full.training_flops / (tokens_a_step * flops.model_training))
    return _spent(full.params, flops, steps, steps * tokens_a_step)


def phase_of(resolved: ResolvedAblation, method: MethodSpec) -> PhaseSize:
    """Return the size of an arm's mixture phase.

    A model that starts anew takes the seed model's learning rates, on the batches of all arms.
    """
    phases = resolved.scale.phases
    if not starts_anew(method):
        return phases.mixture
    names = ("peak_lr", "warmup_steps", "final_lr_share")
    return phases.mixture.model_copy(
        update={name: getattr(phases.seed_model, name) for name in names}
    )


def used_branches(resolved: ResolvedAblation, arms: Iterable[str]) -> tuple[Branch, ...]:
    """Return the branches that any of the arms needs, each once, in the order of their use."""
    found = (branch for arm in arms for branch in branches(resolved, arm))
    return tuple(dict.fromkeys(branch for branch in found if branch.name != SEED_MODEL))


def num_experts(resolved: ResolvedAblation, method: MethodSpec) -> int:
    """Return how many dense experts an arm mixes; 1 for a dense arm, the seed model."""
    return len(mixed(resolved, method))


def mixed(resolved: ResolvedAblation, method: MethodSpec) -> tuple[str, ...]:
    """Return the dense model behind each of an arm's experts, in router-column order."""
    return experts_of(method, resolved.recipe.mixture.experts)


def branches(resolved: ResolvedAblation, arm: str) -> tuple[Branch, ...]:
    """Return the dense models that an arm reads; the seed model is the branch of that name."""
    method, data = resolved.arms[arm], resolved.data.get(arm, DataSpec())
    how = method.branch if isinstance(method, BTXMethod | BAMMethod) else None
    names = sources_of(method, resolved.recipe.mixture.experts)
    return tuple(
        Branch(name)
        if name == SEED_MODEL
        else Branch(name, how, own_data(resolved.recipe, resolved.corpus.general, name, data))
        for name in names
    )


def _before(resolved: ResolvedAblation, arm: str) -> int:
    """Return the FLOPs before the mixture phase that the match counts."""
    return _lineage(resolved, arm) if resolved.ablation.match.phase == "all" else 0


def _lineage(resolved: ResolvedAblation, arm: str) -> int:
    read = set(branches(resolved, arm))
    seed = seed_budget(resolved).training_flops if read else 0
    trained = [branch for branch in read if branch.name != SEED_MODEL]
    return seed + sum(expert_budget(resolved, branch.how).training_flops for branch in trained)


def _mixture(
    resolved: ResolvedAblation, method: MethodSpec, part: MethodSpec, steps: int
) -> PhaseBudget:
    size = phase_of(resolved, method)
    return _budget(resolved.model, part, num_experts(resolved, method), size, steps)


def _budget(
    model: ModelSpec, method: MethodSpec, experts: int, size: PhaseSize, steps: int
) -> PhaseBudget:
    flops = per_token(model, method, experts, model.max_seq_len)
    tokens = steps * size.batch_sequences * model.max_seq_len
    return _spent(count(model, method, experts), flops, steps, tokens)


def _spent(params: ParamCount, flops: FlopCount, steps: int, tokens: int) -> PhaseBudget:
    return PhaseBudget(
        steps=steps,
        tokens=tokens,
        params=params,
        flops=flops,
        training_flops=tokens * flops.model_training,
        executed_flops=tokens * flops.executed_training,
    )


def _training_flops(parts: Iterable[PhaseBudget]) -> int:
    return sum(part.training_flops for part in parts)


def _steps_of(size: PhaseSize, model: ModelSpec) -> int:
    return max(round(size.tokens / (size.batch_sequences * model.max_seq_len)), 1)
