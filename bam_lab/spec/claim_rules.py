"""Check the claims that an ablation names: its arms, axes and settings can judge each.

A claim may rest on several ablations, so it is enough that one of its tests can be made here.
"""

from collections.abc import Iterator

from bam_lab.spec.axes import SETTING
from bam_lab.spec.claims import Claim, Compared, MonotoneTest, Test, quorum
from bam_lab.spec.messages import nearest
from bam_lab.spec.reader import Document
from bam_lab.spec.resolved import ResolvedAblation

_WHERE = ("every", "average", "most")


def claim_problems(
    document: Document, resolved: ResolvedAblation, claims: dict[str, Claim]
) -> Iterator[str]:
    """Check every claim that an ablation declares; one that nobody knows is told elsewhere."""
    for index, name in enumerate(resolved.ablation.claims):
        if name not in claims:
            continue
        for text in _texts(resolved, claims[name]):
            yield document.problem(("claims", index), f"must be judged by this ablation: {text}")


def _texts(resolved: ResolvedAblation, claim: Claim) -> list[str]:
    found = [list(misfits(resolved, claim, test)) for test in claim.tests]
    if not all(found):
        return []
    return list(dict.fromkeys(text for texts in found for text in texts))


def misfits(resolved: ResolvedAblation, claim: Claim, test: Test) -> Iterator[str]:
    """Say why a test of a claim cannot be made of an ablation."""
    arms = {arm.partition("@")[0] for arm in resolved.arms}
    if isinstance(test, MonotoneTest):
        arms |= set(resolved.bases.values())  # along an axis all of the arm's points are compared
    settings = [name for name, _ in resolved.settings if name]
    for role in test.names:
        name, _, setting = role.partition("@")
        fillers = claim.roles.get(name, (name,))
        if not arms & set(fillers):
            kind = f"one of {', '.join(fillers)}" if len(fillers) > 1 else f"an arm {fillers[0]!r}"
            yield f"it needs {kind}. {nearest(fillers[0], arms)}"
        if setting and setting not in settings:
            yield f"it needs a setting {setting!r}. {nearest(setting, settings)}"
    if not isinstance(test, Compared):
        return
    if quorum(test.in_) is None and test.in_ not in (*_WHERE, *resolved.domains):
        yield f"it is of a domain {test.in_!r}. {nearest(test.in_, resolved.domains)}"
    named = quorum(test.setting) is None and test.setting != "every"
    if named and test.setting not in settings:
        yield f"it needs a setting {test.setting!r}. {nearest(test.setting, settings)}"
    if isinstance(test, MonotoneTest):
        axes = {axis for found in resolved.axes.values() for axis in found}
        axes |= {SETTING} if settings else set()
        if test.axis not in axes:
            yield f"it needs an axis {test.axis!r}. {nearest(test.axis, axes)}"
