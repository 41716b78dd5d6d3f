"""Cut an arm's mixture phase into its parts: by steps, by what a step costs, or by its batch."""

from collections.abc import Callable

from bam_lab.cost.match.lineage import num_experts
from bam_lab.cost.match.measured import DENSE_MODEL, Model
from bam_lab.cost.match.phases import DENSE, PhaseBudget, mixture, training_flops
from bam_lab.spec.experts import parts_of
from bam_lab.spec.methods import LoryToSparseMethod, MethodSpec
from bam_lab.spec.resolved import ResolvedAblation


def by_steps(
    resolved: ResolvedAblation, method: MethodSpec, steps: int, batch: int
) -> tuple[PhaseBudget, ...]:
    """Return the parts of a mixture phase of `steps` steps of `batch` sequences."""
    parts: list[PhaseBudget] = []
    for part, share in zip(parts_of(method), _shares(method), strict=True):
        wanted = share * (steps - sum(done.steps for done in parts))
        parts.append(mixture(resolved, method, part, round(wanted), batch))
    return tuple(parts)


def by_cost(
    resolved: ResolvedAblation,
    method: MethodSpec,
    goal: float,
    batch: int,
    cost: Callable[[MethodSpec, PhaseBudget], float],
) -> tuple[PhaseBudget, ...]:
    """Return the parts whose steps come nearest to `goal`, `cost` being that of some steps."""
    parts: list[PhaseBudget] = []
    left = goal
    for part, share in zip(parts_of(method), _shares(method), strict=True):
        step = cost(part, mixture(resolved, method, part, 1, batch))
        parts.append(mixture(resolved, method, part, round(share * left / step), batch))
        left -= cost(part, parts[-1])
    return tuple(parts)


def batch_for(resolved: ResolvedAblation, method: MethodSpec, flops: int, steps: int) -> int:
    """Return the sequences a step, one or more, that come nearest to `flops` in `steps` steps."""
    one = training_flops(by_steps(resolved, method, steps, 1))
    return max(round(flops / one), 1)


def part_seconds(
    resolved: ResolvedAblation, method: MethodSpec, part: MethodSpec, spent: PhaseBudget
) -> float:
    """Return how long some steps take; in executed FLOPs while nothing is measured."""
    if resolved.measured is None:
        return spent.executed_flops
    return spent.steps * resolved.measured[Model(part, num_experts(resolved, method)).key]


def dense_seconds(resolved: ResolvedAblation, spent: PhaseBudget) -> float:
    """Return how long a dense model's stage takes, at the pace of a dense step as it was timed.

    The step is one of the mixture phase's batch; low-rank branches take by their FLOPs.
    """
    if resolved.measured is None:
        return spent.executed_flops
    batch = resolved.scale.phases.mixture.batch_sequences
    step = mixture(resolved, DENSE, DENSE, 1, batch)
    return spent.executed_flops / step.executed_flops * resolved.measured[DENSE_MODEL.key]


def _shares(method: MethodSpec) -> tuple[float, ...]:
    """Return the share of what is left that each part of the mixture phase gets."""
    if isinstance(method, LoryToSparseMethod):
        return 1 - method.sparse_share, 1.0
    return (1.0,) * len(parts_of(method))
