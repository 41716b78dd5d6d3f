"""From a test of a claim to its comparisons: which arms, under which settings, in which domains.

A test becomes a tree: "at least k of" settings, of domains, of comparisons, down to the leaves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bam_lab.report.blocks import AVERAGE, diagonal
from bam_lab.report.chains import chains_of
from bam_lab.report.comparisons import leaves_of
from bam_lab.report.contrasts import GROWTH, NotMeasured, OutOfScope, cost_value, places_of
from bam_lab.report.costs import num_experts_of
from bam_lab.report.dense_tasks import task_diagonal
from bam_lab.report.evidence import Evidence
from bam_lab.report.homes import at_home, better_experts
from bam_lab.report.leaves import MORE, Leaf, Ps, partial
from bam_lab.report.scope import number
from bam_lab.report.settings import dense_groups, shown, views
from bam_lab.report.standing import unranked
from bam_lab.report.words import MATCHED, words
from bam_lab.spec.claim_tests import (
    AtHomeTest,
    BetterExpertsTest,
    Compared,
    CostTest,
    DiagonalTest,
    MonotoneTest,
    Test,
    TrendTest,
    WidensTest,
    quorum,
    wanted_of,
)
from bam_lab.spec.claims import Claim
from bam_lab.spec.measures import MEASURES


@dataclass(frozen=True)
class Group:
    """Hold comparisons, or groups of them, and how many of them a claim wants."""

    parts: tuple["Leaf | Group", ...]
    wanted: int

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Return all comparisons."""
        found: list[Leaf] = []
        for part in self.parts:
            found += part.leaves if isinstance(part, Group) else (part,)
        return tuple(found)

    def ps(self, delta: float) -> Ps:
        """Return the p values of the whole."""
        return partial([part.ps(delta) for part in self.parts], self.wanted)

    def needed(self, delta: float, level: float) -> int:
        """Return the replicates that would settle the whole."""
        counts = sorted(part.needed(delta, level) for part in self.parts)
        return min(counts[self.wanted - 1], MORE)


@dataclass(frozen=True)
class Part:
    """Hold one test of a claim: its comparisons, or why there are none."""

    text: str
    tree: Group | None = None
    verdict: str = ""
    why: str = ""

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Return all comparisons."""
        return self.tree.leaves if self.tree else ()

    @property
    def judged(self) -> bool:
        """Return whether every comparison has an error to judge by (exact ones need none)."""
        return all(leaf.difference is None or leaf.difference.judged for leaf in self.leaves)


def part_of(evidence: Evidence, claim: Claim, test: Test) -> Part:
    """Return a test with its comparisons, or with the reason why it has none."""
    try:
        if evidence.changes:
            raise OutOfScope(f"run with {', '.join(evidence.changes)}")
        names, tree = _tree(evidence, claim, test)
    except NotMeasured as error:
        return Part(words(test), verdict="not measured", why=str(error))
    except OutOfScope as error:
        return Part(words(test), verdict="out of scope", why=str(error))
    return Part(words(test, names), tree)


def filled(evidence: Evidence, claim: Claim, role: str) -> str:
    """Return the arm that fills a role, `ROLE@SETTING` under one setting.

    Raises:
        OutOfScope: there is none.
    """
    base, at, setting = role.partition("@")
    for name in claim.roles.get(base, (base,)):
        for arm in evidence.arms:
            if arm.name == name + at + setting or (not at and shown(arm.name) == name):
                return arm.name
    raise OutOfScope(f"this ablation has no arm {role}")


def _tree(evidence: Evidence, claim: Claim, test: Test) -> tuple[tuple[str, ...], Group]:
    """Return the arms that fill the test's roles, as words name them, and its comparisons."""
    if isinstance(test, DiagonalTest):
        return (), _diagonal(evidence, test)
    if isinstance(test, CostTest):
        return _each_setting(evidence, claim, test, lambda view, arms: _cost(view, test, arms))
    if test.match not in ("any", evidence.match_on):
        raise OutOfScope(f"this ablation matches on {MATCHED[evidence.match_on]}")
    if isinstance(test, AtHomeTest | BetterExpertsTest):
        return _each_setting(evidence, claim, test, lambda view, arms: _experts(view, test, arms))
    if isinstance(test, MonotoneTest) or _over_budgets(evidence, test):
        chains = chains_of(evidence, claim, test)
        made = [_domains(evidence, test, chain) for chain in chains]
        wanted = _wanted(test.setting, len(made), "settings")
        return test.names, Group(tuple(made), wanted)
    return _each_setting(evidence, claim, test, lambda view, arms: _domains(view, test, arms))


def _over_budgets(evidence: Evidence, test: Compared) -> bool:
    """Return whether a trend is one over budgets, each with its own decay."""
    return isinstance(test, TrendTest) and any("budget" in s.axes for s in evidence.settings)


def _each_setting(
    evidence: Evidence,
    claim: Claim,
    test: Compared | CostTest,
    made: Callable[[Evidence, tuple[str, ...]], Group],
) -> tuple[tuple[str, ...], Group]:
    """Make the comparisons under every setting that the test is about."""
    if any("@" in role for role in test.names):
        arms = tuple(filled(evidence, claim, role) for role in test.names)
        return arms, made(evidence, arms)
    wanted = test.setting if isinstance(test, Compared) else "every"
    chosen = views(evidence)
    if wanted != "every" and not quorum(wanted):
        chosen = tuple((name, view) for name, view in chosen if name == wanted)
        if not chosen:
            raise OutOfScope(f"this ablation has no setting {wanted}")
    groups: list[Group] = []
    for _, view in chosen:
        arms = tuple(filled(view, claim, role) for role in test.names)
        groups.append(made(view, arms))
    if len(groups) > 1:
        groups = [_placed(group) for group in groups]
    names = tuple(shown(arm) for arm in arms) if len(chosen) > 1 else arms
    return names, Group(tuple(groups), _wanted(wanted, len(groups), "settings"))


def _domains(evidence: Evidence, test: Compared, arms: tuple[str, ...]) -> Group:
    """Make the comparisons of some arms in every domain that the test is about."""
    for arm in dict.fromkeys(arms):
        if MEASURES[test.measure].source != "costs" and (why := unranked(evidence, arm)):
            raise OutOfScope(f"{arm} is not ranked: {why}")
    domains = _places(evidence, test)
    leaves = [leaves_of(evidence, test, arms, domain) for domain in domains]
    groups = tuple(Group(tuple(own), len(own)) for own in leaves)
    if any(len(own) > 1 for own in leaves):
        groups = tuple(_placed(group) for group in groups)
    if test.in_.startswith("at most"):
        # "At most k better" is "at least n - k without gain", and the reverse: `leaves_of` turns.
        asked = quorum(test.in_)
        assert asked
        _wanted(test.in_, len(groups), "domains")
        return Group(groups, max(len(groups) - asked[1], 1))
    wanted = len(groups) if len(groups) == 1 else _wanted(test.in_, len(groups), "domains")
    return Group(groups, wanted)


def _placed(group: Group) -> Group:
    """Return comparisons told apart by their arms, where the domain alone does not."""
    parts = (
        _placed(part) if isinstance(part, Group) else replace(part, place=part.label)
        for part in group.parts
    )
    return replace(group, parts=tuple(parts))


def _places(evidence: Evidence, test: Compared) -> Sequence[str]:
    places = places_of(evidence, test.measure)
    if not MEASURES[test.measure].domains:
        return [""]
    if isinstance(test, WidensTest):
        return [GROWTH]
    if test.in_ == "average":
        suites = dict.fromkeys(place.partition("@")[2] for place in places)
        return [f"{AVERAGE}@{suite}" if suite else AVERAGE for suite in suites]
    if test.in_ in ("every", "most") or quorum(test.in_):
        return places
    chosen = [place for place in places if place.partition("@")[0] == test.in_]
    if not chosen:
        raise OutOfScope(f"this ablation has no domain {test.in_}")
    return chosen


def _wanted(where: str, count: int, kind: str) -> int:
    """Return how many of `count` are wanted; a quorum is about as many as it was said of."""
    asked = quorum(where)
    if asked and asked[2] != count:
        raise OutOfScope(f"said of {asked[2]} {kind}, there are {count} here")
    return count if where not in ("every", "most") and not asked else wanted_of(where, count)


def _experts(
    evidence: Evidence, test: AtHomeTest | BetterExpertsTest, arms: tuple[str, ...]
) -> Group:
    if isinstance(test, AtHomeTest):
        if why := unranked(evidence, arms[0]):
            raise OutOfScope(f"{arms[0]} is not ranked: {why}")
        leaves = at_home(evidence, arms[0])
    else:
        leaves = better_experts(evidence, test.text, *arms)
    return Group(tuple(leaves), len(leaves))


def _diagonal(evidence: Evidence, test: DiagonalTest) -> Group:
    if test.measure == "task_accuracy":
        leaves = task_diagonal(evidence)
        return Group(tuple(leaves), len(leaves))
    leaves = []
    for settings, view in dense_groups(evidence):
        under = f" ({', '.join(settings)})" if settings else ""
        for domain, compared in diagonal(view).items():
            for other, difference in compared.items():
                if difference is None:
                    raise NotMeasured(f"{domain} expert or {other} has no score on {domain}")
                label = f"{domain} expert against {other}, {domain}{under}"
                leaves.append(Leaf(label, domain, "better", difference))
    if not leaves:
        raise OutOfScope("no branch is trained as the recipe says")
    return Group(tuple(leaves), len(leaves))


def _cost(evidence: Evidence, test: CostTest, arms: tuple[str, ...]) -> Group:
    first, second = arms
    mine, theirs = (cost_value(evidence, arm, test.measure) for arm in arms)
    if test.ratio == "less":
        exact = mine < theirs
    else:
        exact = mine * num_experts_of(evidence, first) == theirs
    text = f"{number(mine)} against {number(theirs)} ({mine / theirs:.3f})"
    leaf = Leaf(f"{first} against {second}", test.measure, "better", exact=exact, text=text)
    return Group((leaf,), 1)
