"""Judge the declared claims: holds, contradicted, no difference, inconclusive, or why not.

design: Holm over the declared claims, not over cells; with one replicate only direction and size.
A claim is the conjunction of its tests; tests that this ablation cannot make (another match, an arm
that it lacks) are named, and the verdict is about the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bam_lab.report.blocks import AVERAGE, arm_blocks, diagonal, missing_reason
from bam_lab.report.costs import cost_of, num_experts_of
from bam_lab.report.evidence import Evidence
from bam_lab.report.leaves import MORE, Leaf, Ps, decide, nats, partial
from bam_lab.report.scope import scope
from bam_lab.report.standing import stand_in, unranked
from bam_lab.report.stats import LEVEL, block_difference, holm
from bam_lab.spec.claims import BetterTest, Claim, CostTest, DiagonalTest, NoGainTest, Test, quorum
from bam_lab.spec.measures import MEASURES

NOT_JUDGED = "not judged (1 replicate)"
NAMES = {"flops": "FLOPs", "tokens": "tokens"}
MANY = 6
"""Comparisons beyond which a sentence does not list them."""


class NotMeasured(Exception):
    """Say which number is missing."""


class OutOfScope(Exception):
    """Say why this ablation is not about the test."""


@dataclass(frozen=True)
class Part:
    """Hold one test of a claim: its comparisons, and how many it wants; or why there are none."""

    text: str
    leaves: tuple[Leaf, ...] = ()
    wanted: int = 0
    verdict: str = ""
    why: str = ""

    @property
    def judged(self) -> bool:
        """Return whether every comparison has an error to judge by (exact ones need none)."""
        return all(leaf.difference is None or leaf.difference.judged for leaf in self.leaves)


@dataclass(frozen=True)
class Judgement:
    """Hold one claim with its verdict.

    Attributes:
        qualifier: how many of the claim's tests it is about, where not all.
        p: the Holm-adjusted p of "holds"; None when not tested.
        details: what the verdict rests on, test by test, and what an inconclusive one would need.
    """

    id: str
    claim: Claim
    verdict: str
    qualifier: str
    p: float | None
    details: tuple[str, ...]
    scope: str
    parts: tuple[Part, ...]


def judge(evidence: Evidence, claims: Mapping[str, Claim]) -> tuple[Judgement, ...]:
    """Judge the ablation's declared claims."""
    delta = nats(evidence.delta)
    parts = {name: _parts(evidence, claim) for name, claim in claims.items()}
    tested = {
        name: partial(
            [partial([leaf.ps(delta) for leaf in p.leaves], p.wanted) for p in made], len(made)
        )
        for name, all_parts in parts.items()
        if (made := [p for p in all_parts if p.leaves]) and all(p.judged for p in made)
    }
    adjusted = _adjust(tested)
    return tuple(
        _judgement(evidence, name, claim, parts[name], adjusted.get(name), len(tested))
        for name, claim in claims.items()
    )


def _adjust(tested: Mapping[str, Ps]) -> dict[str, Ps]:
    columns = [
        holm([p.holds for p in tested.values()]),
        holm([p.contradicted for p in tested.values()]),
        holm([p.no_difference for p in tested.values()]),
    ]
    return {name: Ps(*values) for name, *values in zip(tested, *columns, strict=True)}


def _judgement(
    evidence: Evidence,
    name: str,
    claim: Claim,
    parts: tuple[Part, ...],
    ps: Ps | None,
    family: int,
) -> Judgement:
    delta = nats(evidence.delta)
    made = [part for part in parts if part.leaves]
    lacking = [part for part in parts if part.verdict == "not measured"]
    left_out = [f"{p.text}: {p.verdict}: {p.why}" for p in parts if not p.leaves]
    details = [f"{p.text}: {_sizes(p, delta)}" for p in made]
    verdict = NOT_JUDGED
    if ps is not None:
        verdict = decide(ps)
        details = [f"{p.text}: {_tally(p, delta)}" for p in made]
        if verdict == "inconclusive":
            details.append(_needed(made, delta, LEVEL / family))
    if not made:
        verdict = "not measured" if lacking else "out of scope"
    elif lacking and verdict != "contradicted":
        # A conjunction with an unknown part can be refuted by the others, but not shown.
        verdict = "not measured"
    told = [f"{len(made)} of {len(parts)} tests"] if made and left_out else []
    if made and (standing := stand_in(evidence)):
        told.append("stand-in")
        details.append(f"The verdict is about {standing}")
    return Judgement(
        id=name,
        claim=claim,
        verdict=verdict,
        qualifier=", ".join(told),
        p=ps.holds if ps else None,
        details=(*details, *left_out),
        scope=scope(evidence),
        parts=parts,
    )


def _sizes(part: Part, delta: float) -> str:
    agree, count = sum(leaf.agrees(delta) for leaf in part.leaves), len(part.leaves)
    sizes = ", ".join(f"{leaf.place} {leaf.size()}" for leaf in part.leaves)
    sizes = f" ({sizes})" if count <= MANY else ""
    if count == 1:
        return f"the size {'agrees' if agree else 'does not agree'} with the claim{sizes}"
    return f"the size agrees with the claim in {agree} of {count}{sizes}"


def _tally(part: Part, delta: float) -> str:
    verdicts = [leaf.verdict(delta) for leaf in part.leaves]
    kinds = ("holds", "contradicted", "no difference", "inconclusive")
    counts = [f"{kind} in {verdicts.count(kind)}" for kind in kinds if kind in verdicts]
    return f"{', '.join(counts)} of {len(verdicts)}" if len(verdicts) > 1 else verdicts[0]


def _needed(parts: Sequence[Part], delta: float, level: float) -> str:
    each = [sorted(leaf.needed(delta, level) for leaf in p.leaves)[p.wanted - 1] for p in parts]
    most = max(each)
    number = "more than 1,000 replicates" if most == MORE else f"about {most} replicates"
    return f"To settle it, if the measured sizes were the true ones: {number} (power 0.8)"


def _parts(evidence: Evidence, claim: Claim) -> tuple[Part, ...]:
    parts = []
    for test in claim.tests:
        try:
            parts.append(_part(evidence, claim, test))
        except NotMeasured as error:
            parts.append(Part(_text(test), verdict="not measured", why=str(error)))
        except OutOfScope as error:
            parts.append(Part(_text(test), verdict="out of scope", why=str(error)))
    return tuple(parts)


def _part(evidence: Evidence, claim: Claim, test: Test) -> Part:
    if evidence.changes:
        raise OutOfScope(f"run with {', '.join(evidence.changes)}")
    match test:
        case BetterTest():
            return _compared(evidence, claim, test, test.arm, test.than, "better")
        case NoGainTest():
            return _compared(evidence, claim, test, test.arm, test.over, "no_gain")
        case DiagonalTest():
            return _diagonal(evidence, test)
        case CostTest():
            return _cost(evidence, claim, test)
        case _:
            raise NotMeasured("this kind of test is not judged yet")


def _compared(
    evidence: Evidence,
    claim: Claim,
    test: BetterTest | NoGainTest,
    first: str,
    second: str,
    kind: Literal["better", "no_gain"],
) -> Part:
    if test.match not in ("any", evidence.match_on):
        raise OutOfScope(f"this ablation matches on {NAMES[evidence.match_on]}")
    arms = [_filled(evidence, claim, role) for role in (first, second)]
    for arm in arms:
        if why := unranked(evidence, arm):
            raise OutOfScope(f"{arm} is not ranked: {why}")
    domains = [AVERAGE] if test.in_ == "average" else list(evidence.domains)
    wanted, kind = _wanted(test.in_, len(domains), kind)
    leaves = []
    for domain in domains:
        difference = block_difference(arm_blocks(evidence, domain), *arms)
        if difference is None:
            where = evidence.domains if domain == AVERAGE else (domain,)
            why = next(filter(None, (missing_reason(evidence, arm, where) for arm in arms)), "")
            raise NotMeasured(why or f"{' and '.join(arms)} share no replicate")
        leaves.append(Leaf(f"{arms[0]} against {arms[1]}, {domain}", domain, kind, difference))
    return Part(_text(test, arms), tuple(leaves), wanted)


def _wanted(
    where: str, count: int, kind: Literal["better", "no_gain"]
) -> tuple[int, Literal["better", "no_gain"]]:
    """Return how many of `count` leaves are wanted, and of which kind."""
    asked = quorum(where)
    if asked is None:
        return count, kind
    direction, k, of = asked
    if of != count:
        raise OutOfScope(f"said of {of} domains, there are {count} here")
    if direction == "least":
        return k, kind
    # "At most k better" is "at least n - k without gain", and the reverse.
    return max(of - k, 1), ("no_gain" if kind == "better" else "better")


def _diagonal(evidence: Evidence, test: DiagonalTest) -> Part:
    leaves = []
    if not diagonal(evidence):
        raise OutOfScope("no branch is trained as the recipe says")
    for domain, compared in diagonal(evidence).items():
        for other, difference in compared.items():
            if difference is None:
                raise NotMeasured(f"{domain} expert or {other} has no score on {domain}")
            label = f"{domain} expert against {other}, {domain}"
            leaves.append(Leaf(label, domain, "better", difference))
    return Part(_text(test), tuple(leaves), len(leaves))


def _cost(evidence: Evidence, claim: Claim, test: CostTest) -> Part:
    first, second = (_filled(evidence, claim, role) for role in (test.arm, test.than))
    mine, theirs = (cost_of(evidence, name, test.measure) for name in (first, second))
    if test.ratio == "less":
        exact = mine < theirs
    else:
        exact = mine * num_experts_of(evidence, first) == theirs
    text = f"{mine:,} against {theirs:,} ({mine / theirs:.3f})"
    return Part(
        _text(test, (first, second)),
        (Leaf(f"{first} against {second}", test.measure, "better", exact=exact, text=text),),
        1,
    )


def _filled(evidence: Evidence, claim: Claim, role: str) -> str:
    names = [arm.name for arm in evidence.arms]
    for name in claim.roles.get(role, (role,)):
        if name in names:
            return name
    raise OutOfScope(f"this ablation has no arm {role}")


def _text(test: Test, names: Sequence[str] = ()) -> str:
    """Return a test in words; `names` are the arms that fill its two roles, once known."""
    match test:
        case BetterTest():
            one, two = names or (test.arm, test.than)
            return f"{one} better than {two}, {_place(test.in_)}{_matched(test.match)}"
        case NoGainTest():
            one, two = names or (test.arm, test.over)
            return f"{one} no gain over {two}, {_place(test.in_)}{_matched(test.match)}"
        case DiagonalTest():
            return "each dense expert lowest of all dense models in its own domain"
        case CostTest():
            one, two = names or (test.arm, test.than)
            what = MEASURES[test.measure].title
            ratio = "fewer" if test.ratio == "less" else "1/N of the"
            return f"{one} {ratio} {what}, against {two}"
        case _:
            return test.test


def _place(where: str) -> str:
    if where == "average":
        return "on the average over domains"
    return "in every domain" if where == "every" else f"in {where} domains"


def _matched(match: str) -> str:
    return "" if match == "any" else f", at equal {NAMES[match]}"
