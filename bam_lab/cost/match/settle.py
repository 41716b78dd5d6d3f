"""Settle what an ablation leaves to arithmetic: sizes by another arm's name, and turned knobs."""

from dataclasses import replace

from bam_lab.cost.match.knobs import turned
from bam_lab.cost.sizes import sized
from bam_lab.errors import SpecError
from bam_lab.spec.resolved import ResolvedAblation


def settled(resolved: ResolvedAblation) -> ResolvedAblation:
    """Return the ablation, in each of its settings, with every arm's own size.

    Raises:
        SpecError: knobs cannot make an arm equal, with the nearest that there is.
    """
    if not resolved.children:
        return _settled(resolved)
    children, problems = list[ResolvedAblation](), list[str]()
    for child in resolved.children:
        try:
            children.append(_settled(child))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
    if resolved.ablation.match.across:
        children[1:] = [replace(child, first=children[0]) for child in children[1:]]
    every = {name: method for child in children for name, method in child.arms.items()}
    return replace(resolved, arms=every, children=tuple(children))


def _settled(resolved: ResolvedAblation) -> ResolvedAblation:
    """Turn the knobs, then size again what is sized by an arm that was turned."""
    found = turned(sized(resolved))
    named = {arm for arm, method in resolved.arms.items() if getattr(method, "size_of", None)}
    arms = {arm: (resolved if arm in named else found).arms[arm] for arm in resolved.arms}
    return sized(replace(resolved, arms=arms))
