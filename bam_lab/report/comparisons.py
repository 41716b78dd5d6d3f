"""The comparisons that one test makes of some arms in one domain."""

import math
from collections.abc import Mapping
from itertools import pairwise

from bam_lab.report.blocks import AVERAGE
from bam_lab.report.contrasts import (
    NotMeasured,
    OutOfScope,
    average_of,
    contrast,
    cost_value,
    places_of,
    values_of,
)
from bam_lab.report.evidence import Evidence, MeasureCell
from bam_lab.report.leaves import Kind, Leaf, Ps, nats
from bam_lab.report.progress import reaches, trend
from bam_lab.report.scope import number
from bam_lab.report.stats import block_contrast, p_chance
from bam_lab.spec.claim_tests import (
    AboveChanceTest,
    BetterTest,
    BroadTest,
    Compared,
    EqualTest,
    InteractionTest,
    MonotoneTest,
    NoGainTest,
    OrderTest,
    RatioTest,
    ReachesTest,
    TrendTest,
    WidensTest,
)
from bam_lab.spec.measures import MEASURES


def leaves_of(evidence: Evidence, test: Compared, arms: tuple[str, ...], domain: str) -> list[Leaf]:
    """Return a test's comparisons, of which it wants every one.

    Args:
        evidence: the whole, or a view of the arms' setting.
        test: one between arms; `at most k` has its complement compared.
        arms: the arms that fill its roles; along an axis, in its order.
        domain: a domain, `AVERAGE`, or empty for a measure without domains.

    Raises:
        NotMeasured: a number is missing, and which.
    """
    most = test.in_.startswith("at most")
    match test:
        case BetterTest():
            return [
                _pair(evidence, test, arms[0], arms[1], domain, "no_gain" if most else "better")
            ]
        case NoGainTest():
            return [
                _pair(evidence, test, arms[0], arms[1], domain, "better" if most else "no_gain")
            ]
        case EqualTest(within=within):
            leaf = _pair(evidence, test, arms[0], arms[1], domain, "equal", _within(test, within))
            return [leaf]
        case RatioTest():
            return [_ratio(evidence, test, arms, domain)]
        case OrderTest():
            return [_pair(evidence, test, a, b, domain, "better") for a, b in pairwise(arms)]
        case MonotoneTest(direction=direction):
            return _monotone(evidence, test, arms, domain, direction == "falling")
        case InteractionTest():
            a, b, c, d = arms
            label = f"{a} against {b} more than {c} against {d}"
            return [_leaf(evidence, test, _sums((a, d), (b, c)), domain, "better", label)]
        case TrendTest(direction=direction):
            return [_trend(evidence, test, arms, domain, direction == "growing")]
        case ReachesTest(share=share, of=of):
            found = reaches(evidence, arms[0], arms[1], domain, of)
            label = f"{arms[0]} at the final loss of {arms[1]}"
            return [Leaf(f"{label}, {domain}", domain, "below", found, math.log(share))]
        case WidensTest():
            label = f"the lead of {arms[0]} on {arms[1]}, longest against shortest"
            return [_leaf(evidence, test, _sums((arms[0],), (arms[1],)), domain, "better", label)]
        case BroadTest(without=without):
            return [_broad(evidence, test, arms, without)]
        case AboveChanceTest():
            return _above_chance(evidence, test, arms[0], domain)
    raise AssertionError(f"{test.test} is not between arms")


def _pair(
    evidence: Evidence,
    test: Compared,
    first: str,
    second: str,
    domain: str,
    kind: Kind,
    margin: float | None = None,
) -> Leaf:
    label = f"{first} against {second}"
    return _leaf(evidence, test, _sums((first,), (second,)), domain, kind, label, margin)


def _leaf(
    evidence: Evidence,
    test: Compared,
    weights: Mapping[str, float],
    domain: str,
    kind: Kind,
    label: str,
    margin: float | None = None,
    *,
    better: bool = True,
) -> Leaf:
    """Return a comparison of weighted arms; `better` false compares the numbers as they are."""
    measure = MEASURES[test.measure]
    found = contrast(evidence, weights, test.measure, domain, better=better)
    text = ""
    if measure.source == "costs" and len(weights) == 2:
        text = " against ".join(number(cost_value(evidence, arm, test.measure)) for arm in weights)
    return Leaf(
        label=f"{label}, {domain or test.measure}",
        place=domain or test.measure,
        kind=kind,
        difference=found,
        margin=measure.margin if margin is None else margin,
        linear=measure.margin is not None,
        unit=measure.unit if measure.margin is not None else "",
        turned=better and measure.better == "higher",
        text=text,
    )


def _sums(plus: tuple[str, ...], minus: tuple[str, ...]) -> dict[str, float]:
    """Return arm -> weight; an arm on both sides cancels out."""
    weights: dict[str, float] = {}
    for names, sign in ((plus, 1.0), (minus, -1.0)):
        for name in names:
            weights[name] = weights.get(name, 0.0) + sign
    return weights


def _within(test: Compared, within: float | None) -> float | None:
    """Return an `equal` test's margin in the unit of its differences."""
    if within is None or MEASURES[test.measure].margin is not None:
        return within
    return nats(within / 100)


def _ratio(evidence: Evidence, test: RatioTest, arms: tuple[str, ...], domain: str) -> Leaf:
    kind: Kind = "equal"
    margin = nats(test.within or 0.0)
    if test.at_most_as is not None:
        first, second = (cost_value(evidence, arm, test.at_most_as) for arm in arms)
        label = f"{arms[0]} over {arms[1]} at most as {test.at_most_as} ({first / second:.3g})"
        weights = _sums((arms[0],), (arms[1],))
        bound = math.log(first / second)
        return _leaf(evidence, test, weights, domain, "below", label, bound, better=False)
    if test.within is None:
        kind = "below" if test.at_most is not None else "above"
        margin = math.log(test.at_most or test.at_least or 1.0)
    weights, label = _sums((arms[0],), (arms[1],)), f"{arms[0]} over {arms[1]}"
    return _leaf(evidence, test, weights, domain, kind, label, margin, better=False)


def _monotone(
    evidence: Evidence, test: Compared, arms: tuple[str, ...], domain: str, falling: bool
) -> list[Leaf]:
    """Compare the ends, and see that no step goes the other way."""
    order = arms if falling else arms[::-1]  # then the numbers fall along it

    def leaf(lower: str, higher: str, kind: Kind) -> Leaf:
        weights, label = _sums((lower,), (higher,)), f"{lower} against {higher}"
        return _leaf(evidence, test, weights, domain, kind, label, better=False)

    steps = [] if len(order) == 2 else [leaf(a, b, "no_gain") for a, b in pairwise(order)]
    return [leaf(order[-1], order[0], "better"), *steps]


def _trend(
    evidence: Evidence, test: Compared, arms: tuple[str, ...], domain: str, growing: bool
) -> Leaf:
    """Compare a gap late and early in training; of four arms, at the last and the first budget."""
    a, b = arms[:2]
    label = f"the gain of {a} on {b}, late against early"
    if len(arms) == 4:
        late, early = ((arms[0], arms[3]), (arms[1], arms[2]))
        weights = _sums(late, early) if growing else _sums(early, late)
        return _leaf(evidence, test, weights, domain, "better", label)
    found = trend(evidence, a, b, domain) if growing else trend(evidence, b, a, domain)
    return Leaf(f"{label}, {domain}", domain, "better", found)


def _broad(evidence: Evidence, test: Compared, arms: tuple[str, ...], without: int) -> Leaf:
    """Compare two arms on the average over tasks, without those on which the first gains most."""
    weights, places = _sums((arms[0],), (arms[1],)), places_of(evidence, test.measure)
    if len(places) <= without:
        raise OutOfScope(f"of {len(places)} tasks, {without} cannot be left out")
    gains = {p: contrast(evidence, weights, test.measure, p).mean for p in places}
    kept = sorted(places, key=gains.__getitem__)[without:]  # the lowest is the largest gain
    blocks = average_of([values_of(evidence, test.measure, place) for place in kept])
    found = block_contrast(blocks, {arms[0]: -1.0, arms[1]: 1.0})
    if found is None:
        raise NotMeasured(f"{arms[0]} and {arms[1]} share no replicate")
    left_out = ", ".join(sorted(places, key=gains.__getitem__)[:without])
    return Leaf(
        label=f"{arms[0]} against {arms[1]}, without {left_out}",
        place=f"without {left_out}",
        kind="better",
        difference=found,
        margin=MEASURES[test.measure].margin,
        linear=True,
        unit=MEASURES[test.measure].unit,
        turned=True,
    )


def _above_chance(evidence: Evidence, test: Compared, arm: str, domain: str) -> list[Leaf]:
    """Test every replicate's answers against guessing."""
    cells = [
        cell
        for cell in evidence.measures
        if (cell.arm, cell.measure) == (arm, test.measure)
        and domain in (cell.domain, AVERAGE)
        and cell.value is not None
        and cell.items
    ]
    if not cells:
        raise NotMeasured(f"{arm} has no {test.measure}")
    return [_against_chance(cell) for cell in cells]


def _against_chance(cell: MeasureCell) -> Leaf:
    assert cell.value is not None
    correct = round(cell.value * cell.items)
    holds, less = (p_chance(correct, cell.items, cell.chance, side) for side in ("greater", "less"))
    return Leaf(
        label=f"{cell.arm}, {cell.domain or cell.measure}",
        place=cell.domain or cell.measure,
        kind="better",
        given=Ps(holds, less, 1.0),
        text=f"{correct} of {cell.items}, guessing gives {cell.chance:.1%}",
    )
