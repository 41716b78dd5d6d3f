"""Settle the sizes that an ablation states by naming another arm."""

from dataclasses import replace

from bam_lab.cost.params import dense_ffn_dim
from bam_lab.spec.experts import experts_of
from bam_lab.spec.load import ResolvedAblation
from bam_lab.spec.methods import DenseMethod, MethodSpec


def settled(resolved: ResolvedAblation) -> ResolvedAblation:
    """Return the ablation with `ffn_dim` in place of every `size_of`, in each of its settings."""
    if resolved.children:
        children = tuple(settled(child) for child in resolved.children)
        every = {name: method for child in children for name, method in child.arms.items()}
        return replace(resolved, arms=every, children=children)
    arms = {name: _settled(resolved, method) for name, method in resolved.arms.items()}
    return replace(resolved, arms=arms)


def _settled(resolved: ResolvedAblation, method: MethodSpec) -> MethodSpec:
    if not isinstance(method, DenseMethod) or method.size_of is None:
        return method
    other = resolved.arms[method.size_of.arm]
    experts = len(experts_of(other, resolved.recipe.mixture.experts))
    width = dense_ffn_dim(resolved.model, other, experts, method.size_of.params)
    return method.model_copy(update={"ffn_dim": width, "size_of": None})
