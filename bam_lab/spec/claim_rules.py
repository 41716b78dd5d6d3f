"""Check the claims that an ablation names: its arms, axes and settings can judge each.

A paper's claim may rest on several ablations, so it is enough that one of its tests can be made
here; of the file's own every one must be.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bam_lab.spec.axes import SETTING, Expanded, Point
from bam_lab.spec.claim_tests import Compared, MonotoneTest, Test, TrendTest, itself, quorum
from bam_lab.spec.claims import Claim
from bam_lab.spec.measures import MEASURES
from bam_lab.spec.messages import Loc, nearest
from bam_lab.spec.reader import Document

_WHERE = ("every", "average", "most")


@dataclass(frozen=True)
class Subject:
    """Hold the names of an ablation that claims may be about.

    Attributes:
        arms: without settings.
        bases: the names of arms in the file, before axes.
        domains: what models are scored on; empty where a problem of the files hides it.
        lines: an arm, or its name before axes -> the axes along which there are several of it.
    """

    arms: frozenset[str]
    bases: frozenset[str]
    settings: tuple[str, ...]
    axes: frozenset[str]
    domains: tuple[str, ...]
    lines: Mapping[str, frozenset[str]] = field(default_factory=dict)


def subject_of(
    expanded: Sequence[Expanded], points: Sequence[Point], domains: Sequence[str]
) -> Subject:
    """Return the names of an ablation from its settings and its arms under each of them."""
    settings = tuple(point.name for point in points if point.name)
    axes = {axis for under in expanded for found in under.axes.values() for axis in found}
    shared = {axis for point in points for axis in point.axes} | ({SETTING} if settings else set())
    lines: dict[str, frozenset[str]] = {}
    for under in expanded:
        for arm, base in under.bases.items():
            own = frozenset(under.axes[arm])
            lines[base] = lines.get(base, frozenset()) | own | shared
            lines.setdefault(arm, frozenset(shared))
    return Subject(
        arms=frozenset(arm for under in expanded for arm in under.bases),
        bases=frozenset(base for under in expanded for base in under.bases.values()),
        settings=settings,
        axes=frozenset(axes | shared),
        domains=tuple(domains),
        lines=lines,
    )


def claim_problems(
    document: Document,
    subject: Subject,
    claims: Mapping[str, Claim],
    own: Mapping[str, Claim],
) -> Iterator[str]:
    """Check every claim that an ablation declares; one that nobody knows is told elsewhere.

    Args:
        document: the file.
        subject: what claims of it may be about.
        claims: those of the papers.
        own: those that the file itself makes.
    """
    declared = document.data.get("claims")
    found: list[tuple[Loc, list[str]]] = [
        (("claims", index), _texts(subject, claims[name], enough=True))
        for index, name in enumerate(declared if isinstance(declared, list) else ())
        if isinstance(name, str) and name in claims
    ]
    found += [(("own_claims", name), _texts(subject, own[name], enough=False)) for name in own]
    for loc, texts in found:
        for text in texts:
            yield document.problem(loc, f"must be judged by this ablation: {text}")


def _texts(subject: Subject, claim: Claim, *, enough: bool) -> list[str]:
    """Return why a claim cannot be judged; nothing where one test that can be made is `enough`."""
    found = [list(misfits(subject, claim, test)) for test in claim.tests]
    if enough and not all(found):
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
    if name := itself(test, _filled(subject, claim, test)):
        yield f"it compares arm {name!r} with itself, which fills two of its roles."
    if not isinstance(test, Compared):
        return
    if quorum(test.in_) is None and test.in_ not in _WHERE and subject.domains:
        yield from _known("is of a domain", test.in_, subject.domains)
    if quorum(test.setting) is None and test.setting != "every":
        yield from _setting(subject, test.setting)
    yield from _counts(subject, test)
    if isinstance(test, MonotoneTest):
        yield from _axis(subject, claim, test)


def _filled(subject: Subject, claim: Claim, test: Test) -> list[str]:
    """Return the arm that fills each role, and the role itself where none does."""
    found = []
    for role in test.names:
        name, at, setting = role.partition("@")
        fillers = claim.roles.get(name, (name,))
        arm = next((arm for arm in fillers if arm in subject.arms), role)
        found.append(arm if arm == role else arm + at + setting)
    return found


def _counts(subject: Subject, test: Compared) -> Iterator[str]:
    """Say where `at least k of n` is said of another n."""
    asked, count = quorum(test.in_), len(subject.domains)
    if asked and count and MEASURES[test.measure].source == "heldout" and asked[2] != count:
        yield f"it is said of {asked[2]} domains, there are {count}."
    asked, count = quorum(test.setting), max(len(subject.settings), 1)
    if asked and asked[2] != count and not isinstance(test, MonotoneTest | TrendTest):
        yield f"it is said of {asked[2]} settings, there are {count}."


def _axis(subject: Subject, claim: Claim, test: MonotoneTest) -> Iterator[str]:
    yield from _known("needs an axis", test.axis, subject.axes)
    name = test.arm.partition("@")[0]
    fillers = [arm for arm in claim.roles.get(name, (name,)) if arm in subject.lines]
    lined = [arm for arm, axes in subject.lines.items() if test.axis in axes]
    if fillers and lined and not set(fillers) & set(lined):
        yield f"it needs an axis {test.axis!r} of {fillers[0]}. There is one of {', '.join(lined)}."


def _setting(subject: Subject, name: str) -> Iterator[str]:
    return _known("needs a setting", name, subject.settings)


def _known(kind: str, name: str, names: Collection[str]) -> Iterator[str]:
    if name not in names:
        yield f"it {kind} {name!r}. {nearest(name, names)}"
