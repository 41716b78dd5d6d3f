"""Turn a match mode into optimizer steps, so that arms are equal in what the spec says.

`tokens`: every arm takes the baseline's steps, so the same batches in the same order. `flops`:
every arm takes the steps whose model training FLOPs come nearest to the baseline's, over the
mixture phase or over the arm's whole lineage (seed model, the branches it uses, mixture phase). An
arm that starts anew has no lineage; one without a mixture phase takes no step and is not matched.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bam_lab.cost.match.lineage import branches
from bam_lab.cost.match.phases import (
    PhaseBudget,
    expert_budget,
    mixture,
    phase_of,
    seed_budget,
    steps_of,
    training_flops,
)
from bam_lab.cost.sizes import settled
from bam_lab.errors import SpecError
from bam_lab.spec.experts import is_trained, parts_of
from bam_lab.spec.load import ResolvedAblation
from bam_lab.spec.methods import LoryToSparseMethod, MethodSpec
from bam_lab.spec.recipe import SEED_MODEL

TOLERANCE = 0.005


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
    budgets: dict[str, ArmBudget] = {}
    problems: list[str] = []
    for _, child in resolved.settings:
        budgets |= _solve_setting(child, problems)
    if match.unmatched and not problems and all(budget.matched for budget in budgets.values()):
        problems.append(
            f"{resolved.path}: match.unmatched must not be given where every arm is matched: it "
            "would have no effect. Remove it."
        )
    if problems:
        raise SpecError(problems)
    return budgets


def _solve_setting(resolved: ResolvedAblation, problems: list[str]) -> dict[str, ArmBudget]:
    """Return the budgets of the arms of one setting; problems are added."""
    match = resolved.ablation.match
    baseline = resolved.arms[resolved.ablation.baseline]
    if not is_trained(baseline):
        problems.append(
            f"{resolved.path}: baseline must be an arm with a mixture phase, got "
            f"{baseline.method}. Name a trained arm."
        )
        return {}
    steps = steps_of(resolved.scale.phases.mixture, resolved.model)
    target = _parts(resolved, baseline, steps=steps)
    goal = training_flops(target) + _before(resolved, resolved.ablation.baseline)
    budgets: dict[str, ArmBudget] = {}
    for arm, method in resolved.arms.items():
        if match.on == "tokens":
            parts = _parts(resolved, method, steps=steps)
        else:
            parts = _parts(resolved, method, flops=goal - _before(resolved, arm))
        if problem := _problem(resolved, arm, parts):
            problems.append(problem)
        else:
            budgets[arm] = _arm_budget(resolved, arm, parts, target)
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
            step_flops = mixture(resolved, method, part, 1).training_flops
            wanted = share * (flops - training_flops(parts)) / step_flops
        parts.append(mixture(resolved, method, part, round(wanted)))
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
    last = parts[-1] if parts else mixture(resolved, method, method, 0)
    tokens, flops = sum(part.tokens for part in parts), training_flops(parts)
    mine, theirs = float(tokens), float(sum(part.tokens for part in target))
    step = last.tokens / max(last.steps, 1)
    if resolved.ablation.match.on == "flops":
        mine = _before(resolved, arm) + flops
        theirs = _before(resolved, resolved.ablation.baseline) + training_flops(target)
        step = last.training_flops / max(last.steps, 1)
    return ArmBudget(
        steps=sum(part.steps for part in parts),
        tokens=tokens,
        params=last.params,
        flops=last.flops,
        training_flops=flops,
        executed_flops=sum(part.executed_flops for part in parts),
        parts=parts,
        lineage_flops=_lineage(resolved, arm) + flops,
        flops_ratio=flops / training_flops(target),
        match_ratio=mine / theirs,
        matched=bool(parts) and abs(mine - theirs) <= max(TOLERANCE * theirs, step),
    )


def _before(resolved: ResolvedAblation, arm: str) -> int:
    """Return the FLOPs before the mixture phase that the match counts."""
    return _lineage(resolved, arm) if resolved.ablation.match.phase == "all" else 0


def _lineage(resolved: ResolvedAblation, arm: str) -> int:
    read = set(branches(resolved, arm))
    seed = seed_budget(resolved).training_flops if read else 0
    trained = [branch for branch in read if branch.name != SEED_MODEL]
    return seed + sum(expert_budget(resolved, branch.how).training_flops for branch in trained)
