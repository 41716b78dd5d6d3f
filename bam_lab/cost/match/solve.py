"""Turn a match mode into optimizer steps, so that arms are equal in what the spec says.

`tokens`: every arm takes the baseline's steps, so the same batches in the same order. `flops`:
every arm takes the steps whose model training FLOPs come nearest to the baseline's, over the
mixture phase or over the arm's whole lineage (seed model, the branches it uses, mixture phase); or,
where `match.by` says so, the baseline's steps with the batch that comes nearest. `device-time`: the
steps that take as long as the baseline's at the measured seconds a step, over the mixture phase or
the lineage likewise. All others take the baseline's tokens, and `knobs.py` makes their size equal.
An arm that starts anew has no lineage; one without a mixture phase takes no step and is not
matched.
"""

import math
from collections.abc import Callable, Sequence

from bam_lab.cost.match.budget import TOLERANCE, ArmBudget
from bam_lab.cost.match.knobs import size_ratio
from bam_lab.cost.match.lineage import branches
from bam_lab.cost.match.parts import batch_for, by_cost, by_steps, dense_seconds, part_seconds
from bam_lab.cost.match.phases import (
    PhaseBudget,
    expert_budget,
    mixture,
    phase_of,
    seed_budget,
    steps_of,
    training_flops,
)
from bam_lab.cost.match.settle import settled
from bam_lab.errors import SpecError
from bam_lab.spec.experts import is_trained, parts_of
from bam_lab.spec.match_rules import MEASURED, SIZES
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.recipe import SEED_MODEL
from bam_lab.spec.resolved import ResolvedAblation
from bam_lab.spec.router_rules import batch_problems


def solve(resolved: ResolvedAblation) -> dict[str, ArmBudget]:
    """Return every arm's mixture-phase budget.

    Raises:
        SpecError: an arm's branches alone cost more than the baseline's whole lineage, an arm's
            warm-up would not end, the baseline is not trained, a knob or a batch has no solution,
            or `match.unmatched` has no effect.
    """
    resolved = settled(resolved)
    match = resolved.ablation.match
    budgets: dict[str, ArmBudget] = {}
    problems: list[str] = []
    for _, child in resolved.settings:
        budgets |= _solve_setting(child, problems)
    # Where it hangs on a measurement, another machine may need what this one does not.
    told = match.unmatched and match.on not in MEASURED
    if told and not problems and all(budget.matched for budget in budgets.values()):
        text = "must not be given where every arm is matched: it would have no effect. Remove it."
        problems.append(resolved.problem(("match", "unmatched"), text))
    if problems:
        raise SpecError(problems)
    return budgets


def _solve_setting(resolved: ResolvedAblation, problems: list[str]) -> dict[str, ArmBudget]:
    """Return the budgets of the arms of one setting; problems are added."""
    goal_of = resolved.first or resolved
    baseline = goal_of.arms[goal_of.ablation.baseline]
    if not is_trained(baseline):
        text = f"must be an arm with a mixture phase, got {baseline.method}. Name a trained arm."
        problems.append(resolved.problem(("baseline",), text))
        return {}
    size = goal_of.scale.phases.mixture
    target = by_steps(goal_of, baseline, steps_of(size, goal_of.model), size.batch_sequences)
    goal = _spent(goal_of, goal_of.ablation.baseline, target)
    budgets: dict[str, ArmBudget] = {}
    for arm in resolved.arms:
        batch = _batch(resolved, arm, goal, target)
        parts = _parts(resolved, arm, goal, target, batch)
        if problem := _problem(resolved, arm, parts):
            problems.append(problem)
            continue
        budgets[arm] = _arm_budget(resolved, arm, parts, batch, goal, target)
        problems += _batch_problems(resolved, arm, budgets[arm])
    return budgets


def _batch(resolved: ResolvedAblation, arm: str, goal: float, target: Sequence[PhaseBudget]) -> int:
    """Return the sequences of an arm's step: the scale's, unless the match solves them."""
    if not _solves_batch(resolved, arm):
        return resolved.scale.phases.mixture.batch_sequences
    left = round(goal) - round(_before(resolved, arm))
    return batch_for(resolved, resolved.arms[arm], left, sum(part.steps for part in target))


def _solves_batch(resolved: ResolvedAblation, arm: str) -> bool:
    return "batch" in resolved.ablation.match.by.get(resolved.bases.get(arm, arm), ())


def _parts(
    resolved: ResolvedAblation,
    arm: str,
    goal: float,
    target: Sequence[PhaseBudget],
    batch: int,
) -> tuple[PhaseBudget, ...]:
    """Return the parts of an arm's mixture phase."""
    on, method = resolved.ablation.match.on, resolved.arms[arm]
    left = goal - _before(resolved, arm)
    if on == "device-time" or (on == "flops" and not _solves_batch(resolved, arm)):
        return by_cost(resolved, method, left, batch, _cost(resolved, method))
    # A solved batch may have nothing left to spend; all others have before them what counts 0.
    steps = sum(part.steps for part in target) if left > 0 else 0
    return by_steps(resolved, method, steps, batch)


def _problem(resolved: ResolvedAblation, arm: str, parts: Sequence[PhaseBudget]) -> str:
    warmup = phase_of(resolved, resolved.arms[arm]).warmup_steps
    fewest = min((part.steps for part in parts), default=warmup + 1)
    together = sum(part.steps for part in parts)
    if fewest < 1 <= together or (len(parts) > 1 and fewest <= warmup < together):
        return resolved.problem(
            ("arms", arm, "sparse_share"),
            f"must leave each part more steps than warmup_steps {warmup}, got "
            f"{' and '.join(str(part.steps) for part in parts)}. Change the share or raise the "
            "mixture phase's tokens.",
        )
    if fewest < 1:
        return resolved.problem(
            ("match", "phase"),
            f"must leave arm {arm} a mixture phase, but its branches cost the baseline's whole "
            "budget. Use phase: mixture or more tokens.",
        )
    decay = phase_of(resolved, resolved.arms[arm]).decay_steps(fewest)
    if fewest <= warmup + (decay or 0):
        rest = f" and the {decay} of its decay" if decay else ""
        return resolved.problem(
            ("arms", arm),
            f"must train longer than warmup_steps {warmup}{rest}, the match leaves it {fewest} "
            "steps. Raise the mixture phase's tokens.",
        )
    return ""


def _batch_problems(resolved: ResolvedAblation, arm: str, budget: ArmBudget) -> list[str]:
    """Return what is wrong with a batch that was solved."""
    if not _solves_batch(resolved, arm):
        return []
    match, batch = resolved.ablation.match, budget.batch_sequences
    found = [
        resolved.problem(("arms", arm, *keys), text)
        for keys, text in batch_problems(resolved.arms[arm], batch)
    ]
    if not budget.matched and not match.unmatched:
        text = (
            f"must bring arm {arm} within {TOLERANCE:.1%} of the baseline's FLOPs, got "
            f"{budget.match_ratio:.4f} of them with batches of {batch} sequences, the nearest. "
            "Solve the steps instead, or say in match.unmatched why the nearest will do."
        )
        found.append(resolved.problem(("match", "by", resolved.bases.get(arm, arm)), text))
    return found


def _arm_budget(
    resolved: ResolvedAblation,
    arm: str,
    parts: tuple[PhaseBudget, ...],
    batch: int,
    goal: float,
    target: Sequence[PhaseBudget],
) -> ArmBudget:
    on, method = resolved.ablation.match.on, resolved.arms[arm]
    last = parts[-1] if parts else mixture(resolved, method, method, 0, batch)
    flops, mine = training_flops(parts), _spent(resolved, arm, parts)
    step = _cost(resolved, method)(parts_of(method)[-1], last) / last.steps if parts else 0.0
    ratio, matched = mine / goal, abs(mine - goal) <= max(TOLERANCE * goal, step)
    if on in SIZES:
        ratio = size_ratio(resolved, method)
        matched = abs(ratio - 1) <= TOLERANCE
    return ArmBudget(
        steps=sum(part.steps for part in parts),
        tokens=sum(part.tokens for part in parts),
        params=last.params,
        flops=last.flops,
        training_flops=flops,
        executed_flops=sum(part.executed_flops for part in parts),
        bytes_communicated=sum(part.bytes_communicated for part in parts),
        parts=parts,
        batch_sequences=batch,
        lineage_flops=_lineage(resolved, arm) + flops,
        flops_ratio=flops / training_flops(target),
        match_ratio=ratio,
        matched=bool(parts) and matched,
        known=on not in MEASURED or resolved.measured is not None,
    )


def _spent(resolved: ResolvedAblation, arm: str, parts: Sequence[PhaseBudget]) -> float:
    """Return what an arm has spent of the matched quantity: tokens, FLOPs or seconds."""
    cost, methods = _cost(resolved, resolved.arms[arm]), parts_of(resolved.arms[arm])
    spent = sum(cost(part, some) for part, some in zip(methods, parts, strict=True))
    return _before(resolved, arm) + spent


def _cost(resolved: ResolvedAblation, method: MethodSpec) -> Callable[..., float]:
    """Return what some steps of a part cost in the matched quantity."""
    match resolved.ablation.match.on:
        case "flops":
            return lambda part, some: some.training_flops
        case "device-time":
            return lambda part, some: part_seconds(resolved, method, part, some)
        case _:
            return lambda part, some: some.tokens


def _before(resolved: ResolvedAblation, arm: str) -> float:
    """Return the FLOPs, or the seconds, before the mixture phase that the match counts."""
    match = resolved.ablation.match
    if match.phase != "all":
        return 0
    if match.on == "device-time":
        return math.fsum(dense_seconds(resolved, part) for part in _dense_parts(resolved, arm))
    return _lineage(resolved, arm)


def _lineage(resolved: ResolvedAblation, arm: str) -> int:
    return training_flops(_dense_parts(resolved, arm))


def _dense_parts(resolved: ResolvedAblation, arm: str) -> list[PhaseBudget]:
    """Return what the seed model and the branches of an arm spend."""
    read = set(branches(resolved, arm))
    trained = [branch for branch in read if branch.name != SEED_MODEL]
    seed = [seed_budget(resolved)] if read else []
    return seed + [expert_budget(resolved, branch.how) for branch in trained]
