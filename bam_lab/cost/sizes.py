"""Settle the sizes that an ablation states by naming another arm."""

from dataclasses import replace

from bam_lab.cost.params import dense_ffn_dim
from bam_lab.spec.experts import experts_of
from bam_lab.spec.methods import DenseMethod, MethodSpec
from bam_lab.spec.resolved import ResolvedAblation


def sized(resolved: ResolvedAblation) -> ResolvedAblation:
    """Return one setting with `ffn_dim` in place of every `size_of`."""
    arms = {name: _sized(resolved, method) for name, method in resolved.arms.items()}
    return replace(resolved, arms=arms)


def _sized(resolved: ResolvedAblation, method: MethodSpec) -> MethodSpec:
    if not isinstance(method, DenseMethod) or method.size_of is None:
        return method
    other = resolved.arms[method.size_of.arm]
    experts = len(experts_of(other, resolved.recipe.mixture.experts))
    width = dense_ffn_dim(resolved.model, other, experts, method.size_of.params)
    return method.model_copy(update={"ffn_dim": width, "size_of": None})
