"""Judge the declared claims: holds, contradicted, no difference, inconclusive, or why not.

design: Holm over the declared claims, not over cells; with one replicate only direction and size.
A claim is the conjunction of its tests; tests that this ablation cannot make (another match, an arm
that it lacks) are named, and the verdict is about the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bam_lab.report.evidence import Evidence
from bam_lab.report.leaves import MORE, Ps, decide, nats, partial
from bam_lab.report.parts import Part, part_of
from bam_lab.report.scope import scope
from bam_lab.report.standing import stand_in
from bam_lab.report.stats import LEVEL, holm
from bam_lab.spec.claims import Claim

NOT_JUDGED = "not judged (1 replicate)"
MANY = 6
"""Comparisons beyond which a sentence does not list them."""


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
    parts = {
        name: tuple(part_of(evidence, claim, test) for test in claim.tests)
        for name, claim in claims.items()
    }
    tested = {
        name: partial([part.tree.ps(delta) for part in made if part.tree], len(made))
        for name, all_parts in parts.items()
        if (made := [p for p in all_parts if p.tree]) and all(p.judged for p in made)
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
    if len(verdicts) == 1:
        return f"{verdicts[0]} ({part.leaves[0].size()})"
    return f"{', '.join(counts)} of {len(verdicts)}"


def _needed(parts: Sequence[Part], delta: float, level: float) -> str:
    each = [part.tree.needed(delta, level) for part in parts if part.tree]
    most = max(each)
    number = "more than 1,000 replicates" if most == MORE else f"about {most} replicates"
    return f"To settle it, if the measured sizes were the true ones: {number} (power 0.8)"
