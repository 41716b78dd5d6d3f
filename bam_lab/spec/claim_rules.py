"""Check the claims that an ablation names: its arms, axes and settings can judge each.

A paper's claim may rest on several ablations, so it is enough that one of its tests can be made
here; of the file's own every one must be.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bam_lab.spec.axes import SETTING, Expanded, Point
from bam_lab.spec.claim_tests import (
    AtHomeTest,
    BetterExpertsTest,
    Compared,
    DiagonalTest,
    MonotoneTest,
    ReachesTest,
    Test,
    TrendTest,
    itself,
    quorum,
)
from bam_lab.spec.claims import Claim
from bam_lab.spec.experts import is_mixture, is_trained, sources_of
from bam_lab.spec.measures import MEASURES, MeasureName
from bam_lab.spec.messages import Loc, nearest
from bam_lab.spec.methods import BAMMethod, MethodSpec
from bam_lab.spec.reader import Document
from bam_lab.spec.recipe import SEED_MODEL, RecipeSpec
from bam_lab.spec.resolved import ResolvedAblation

_WHERE = ("every", "average", "most")
_OF_FFN: tuple[MeasureName, ...] = (
    "load_max",
    "load_min",
    "experts_used",
    "router_entropy",
    "tokens_dropped",
    "router_churn",
)
_OF_ATTENTION: tuple[MeasureName, ...] = (
    "attention_load_max",
    "attention_entropy",
    "attention_churn",
)


@dataclass(frozen=True)
class Subject:
    """Hold the names of an ablation that claims may be about.

    Attributes:
        arms: without settings.
        bases: the names of arms in the file, before axes.
        domains: what models are scored on; empty where a problem of the files hides it.
        lines: an arm, or its name before axes -> the axes along which there are several of it.
        methods: an arm -> its method; none where a problem of the files hides them.
        recipe: what it is trained by; None likewise.
    """

    arms: frozenset[str]
    bases: frozenset[str]
    settings: tuple[str, ...]
    axes: frozenset[str]
    domains: tuple[str, ...]
    lines: Mapping[str, frozenset[str]] = field(default_factory=dict)
    methods: Mapping[str, MethodSpec] = field(default_factory=dict)
    recipe: RecipeSpec | None = None


def subject_of(
    expanded: Sequence[Expanded], points: Sequence[Point], whole: ResolvedAblation | None
) -> Subject:
    """Return what an ablation has, from its settings and its arms under each of them.

    Args:
        expanded: its arms under each setting.
        points: its settings.
        whole: all that it is; None where a problem of the files hides it.
    """
    methods = whole.arms if whole else {}
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
        domains=tuple(whole.domains) if whole else (),
        lines=lines,
        methods={arm.partition("@")[0]: method for arm, method in methods.items()},
        recipe=whole.recipe if whole else None,
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
    found += [
        (
            ("own_claims", name),
            [*_texts(subject, claim, enough=False), *_other_match(document, claim)],
        )
        for name, claim in own.items()
    ]
    for loc, texts in found:
        for text in texts:
            yield document.problem(loc, f"must be judged by this ablation: {text}")


def _texts(subject: Subject, claim: Claim, *, enough: bool) -> list[str]:
    """Return why a claim cannot be judged; nothing where one test that can be made is `enough`."""
    found = [list(misfits(subject, claim, test)) for test in claim.tests]
    if enough and not all(found):
        return []
    return list(dict.fromkeys(text for texts in found for text in texts))


def _other_match(document: Document, claim: Claim) -> Iterator[str]:
    """Say which matches a claim is about that the file has not."""
    match = document.data.get("match")
    mine = match.get("on") if isinstance(match, dict) else None
    asked = (test.match for test in claim.tests if isinstance(test, Compared))
    for other in dict.fromkeys(asked):
        if other not in ("any", mine):
            yield f"it is about arms matched on {other}, match.on is {mine}."


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
    yield from _lacking(subject, claim, test)
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


def _lacking(subject: Subject, claim: Claim, test: Test) -> Iterator[str]:
    """Say what the arms of a test lack: dense experts, a mixture phase, a router."""
    if subject.recipe is None:
        return
    experts = subject.recipe.mixture.experts
    if isinstance(test, DiagonalTest):
        if not any(_branches(method, experts) for method in subject.methods.values()):
            yield "it needs a branch, no arm reads one."
        return
    if test.measure == "transfer_at_equal_loss" and not subject.recipe.transfer:
        yield "it needs domains under `transfer` in the recipe."
    of_experts = isinstance(test, AtHomeTest | BetterExpertsTest)
    trained = isinstance(test, TrendTest | ReachesTest)
    trained = trained or MEASURES[test.measure].source == "training"
    for name in dict.fromkeys(arm.partition("@")[0] for arm in _filled(subject, claim, test)):
        if (method := subject.methods.get(name)) is None:
            continue  # along an axis, or not there, which is told
        if of_experts and not _branches(method, experts):
            yield f"it needs dense experts behind {name}, which has none."
        elif trained and not is_trained(method):
            yield f"it needs a mixture phase of {name}, which is not trained."
        elif test.measure in _OF_ATTENTION and not isinstance(method, BAMMethod):
            yield f"it needs attention experts in {name}, for {test.measure}."
        elif test.measure in _OF_FFN and not is_mixture(method):
            yield f"it needs FFN experts in {name}, for {test.measure}."


def _branches(method: MethodSpec, experts: Sequence[str]) -> bool:
    """Return whether an arm reads a dense model that is no seed model."""
    return any(name != SEED_MODEL for name in sources_of(method, experts))


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
