"""Which dense models an arm is made of."""

from collections.abc import Iterable

from bam_lab.spec.branches import Branch, own_data
from bam_lab.spec.data import DataSpec
from bam_lab.spec.experts import experts_of, sources_of
from bam_lab.spec.methods import BAMMethod, BTXMethod, MethodSpec
from bam_lab.spec.recipe import SEED_MODEL
from bam_lab.spec.resolved import ResolvedAblation


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
