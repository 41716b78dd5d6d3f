"""Check the claims that an ablation names: its arms, axes and settings can judge each.

A claim may rest on several ablations, so it is enough that one of its tests can be made here.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bam_lab.spec.axes import SETTING, Expanded, Point
from bam_lab.spec.claim_tests import Compared, MonotoneTest, Test, quorum
from bam_lab.spec.claims import Claim
from bam_lab.spec.messages import nearest
from bam_lab.spec.reader import Document

_WHERE = ("every", "average", "most")


@dataclass(frozen=True)
class Subject:
    """Hold the names of an ablation that claims may be about.

    Attributes:
        arms: without settings.
        bases: the names of arms in the file, before axes.
        domains: what models are scored on; empty where a problem of the files hides it.
    """

    arms: frozenset[str]
    bases: frozenset[str]
    settings: tuple[str, ...]
    axes: frozenset[str]
    domains: tuple[str, ...]


def subject_of(
    expanded: Sequence[Expanded], points: Sequence[Point], domains: Sequence[str]
) -> Subject:
    """Return the names of an ablation from its settings and its arms under each of them."""
    settings = tuple(point.name for point in points if point.name)
    axes = {axis for under in expanded for found in under.axes.values() for axis in found}
    axes |= {axis for point in points for axis in point.axes}
    return Subject(
        arms=frozenset(arm for under in expanded for arm in under.bases),
        bases=frozenset(base for under in expanded for base in under.bases.values()),
        settings=settings,
        axes=frozenset(axes | ({SETTING} if settings else set())),
        domains=tuple(domains),
    )


def claim_problems(
    document: Document, subject: Subject, claims: Mapping[str, Claim]
) -> Iterator[str]:
    """Check every claim that an ablation declares; one that nobody knows is told elsewhere."""
    declared = document.data.get("claims")
    for index, name in enumerate(declared if isinstance(declared, list) else ()):
        if not isinstance(name, str) or name not in claims:
            continue
        for text in _texts(subject, claims[name]):
            yield document.problem(("claims", index), f"must be judged by this ablation: {text}")


def _texts(subject: Subject, claim: Claim) -> list[str]:
    found = [list(misfits(subject, claim, test)) for test in claim.tests]
    if not all(found):
        return []
    return list(dict.fromkeys(text for texts in found for text in texts))


def misfits(subject: Subject, claim: Claim, test: Test) -> Iterator[str]:
    """Say why a test of a claim cannot be made of an ablation."""
    along = isinstance(test, MonotoneTest)  # along an axis all of an arm's points are compared
    arms = subject.arms | subject.bases if along else subject.arms
    for role in test.names:
        name, _, setting = role.partition("@")
        fillers = claim.roles.get(name, (name,))
        if not arms & set(fillers):
            kind = f"one of {', '.join(fillers)}" if len(fillers) > 1 else f"an arm {fillers[0]!r}"
            yield f"it needs {kind}. {nearest(fillers[0], arms)}"
        if setting:
            yield from _setting(subject, setting)
    if not isinstance(test, Compared):
        return
    if quorum(test.in_) is None and test.in_ not in _WHERE and subject.domains:
        yield from _known("is of a domain", test.in_, subject.domains)
    if quorum(test.setting) is None and test.setting != "every":
        yield from _setting(subject, test.setting)
    if isinstance(test, MonotoneTest):
        yield from _known("needs an axis", test.axis, subject.axes)


def _setting(subject: Subject, name: str) -> Iterator[str]:
    return _known("needs a setting", name, subject.settings)


def _known(kind: str, name: str, names: Collection[str]) -> Iterator[str]:
    if name not in names:
        yield f"it {kind} {name!r}. {nearest(name, names)}"
