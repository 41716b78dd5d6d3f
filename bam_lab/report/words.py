"""Say a test of a claim in words, with the arms that fill its roles once they are known."""

from collections.abc import Sequence
from typing import assert_never

from bam_lab.spec.claim_tests import (
    AboveChanceTest,
    AtHomeTest,
    BetterExpertsTest,
    BetterTest,
    BroadTest,
    Compared,
    CostTest,
    DiagonalTest,
    EqualTest,
    InteractionTest,
    MonotoneTest,
    NoGainTest,
    OrderTest,
    RatioTest,
    ReachesTest,
    Test,
    TrendTest,
    WidensTest,
    quorum,
)
from bam_lab.spec.measures import BY_LENGTH, MEASURES

MATCHED = {
    "flops": "FLOPs",
    "tokens": "tokens",
    "device-time": "device time",
    "params-total": "total parameters",
    "params-active": "active parameters",
    "inference-flops": "inference FLOPs",
    "decode-throughput": "decoding speed",
}


def words(test: Test, names: Sequence[str] = ()) -> str:
    """Return a test in words; `names` are the arms that fill its roles, in their order."""
    arms = tuple(names or test.names)
    match test:
        case BetterTest():
            return f"{arms[0]} better than {arms[1]}{_where(test)}"
        case NoGainTest():
            return f"{arms[0]} no gain over {arms[1]}{_where(test)}"
        case EqualTest(within=within):
            margin = f" within {_margin(test, within)}" if within is not None else ""
            return f"{arms[0]} equal to {arms[1]}{margin}{_where(test)}"
        case RatioTest():
            return f"{arms[0]} over {arms[1]} {_bound(test)}{_where(test)}"
        case MonotoneTest(axis=axis, direction=direction):
            return f"{arms[0]} {direction} with {axis}{_where(test)}"
        case OrderTest():
            return f"{' better than '.join(arms)}{_where(test)}"
        case InteractionTest():
            one, two, three, four = arms
            return f"the gain of {one} on {two} larger than of {three} on {four}{_where(test)}"
        case TrendTest(direction=direction):
            return f"the gain of {arms[0]} on {arms[1]} {direction} over training{_where(test)}"
        case ReachesTest(share=share, of=of):
            cost = "tokens" if of == "tokens" else "FLOPs"
            final = f"at the final loss of {arms[1]} in {share:g} of its {cost}"
            return f"{arms[0]} {final}{_where(test)}"
        case AtHomeTest():
            return f"{arms[0]} better than each of its experts in the expert's domain"
        case BetterExpertsTest(text=text):
            where = "in their own domains" if text == "own" else "on general text"
            return f"the experts of {arms[0]} better than those of {arms[1]}, {where}"
        case WidensTest():
            lead = f"the lead of {arms[0]} on {arms[1]} larger at long prompts than at short ones"
            return f"{lead}{_where(test)}"
        case BroadTest(without=without):
            lead = f"{arms[0]} better than {arms[1]} on tasks, without the {without} of most gain"
            return f"{lead}{_where(test)}"
        case AboveChanceTest():
            return f"{arms[0]} above chance{_where(test)}"
        case DiagonalTest(measure="perplexity"):
            return "each dense expert lowest of all dense models in its own domain"
        case DiagonalTest():
            return "each dense expert best of all dense models on the tasks of its own domain"
        case CostTest(measure=measure, ratio=ratio):
            part = "fewer" if ratio == "less" else "1/N of the"
            return f"{arms[0]} {part} {MEASURES[measure].title}, against {arms[1]}"
        case _:
            assert_never(test)


def _bound(test: RatioTest) -> str:
    if test.within is not None:
        return f"within {100 * test.within:g}% of 1"
    if test.at_most_as is not None:
        return f"at most their ratio of {MEASURES[test.at_most_as].title}"
    if test.at_most is not None:
        return f"at most {test.at_most:g}"
    return f"at least {test.at_least:g}"


def _margin(test: Compared, within: float) -> str:
    own = MEASURES[test.measure].margin is not None
    return f"{within:g} {MEASURES[test.measure].unit}".strip() if own else f"{within:g}%"


def _where(test: Compared) -> str:
    """Return what, where and under which match and settings."""
    measure = "" if test.measure == "perplexity" else f" by {MEASURES[test.measure].title}"
    matched = "" if test.match == "any" else f", at equal {MATCHED[test.match]}"
    if test.setting == "every":
        setting = ""
    else:
        setting = f", in {test.setting}" + (" settings" if quorum(test.setting) else "")
    placed = MEASURES[test.measure].domains and not isinstance(test, WidensTest | BroadTest)
    place = f", {_place(test)}" if placed else ""
    return f"{measure}{place}{setting}{matched}"


_KINDS = {"task_accuracy": "groups of tasks", "accuracy_by_task": "tasks"}


def _place(test: Compared) -> str:
    kind = "lengths" if test.measure in BY_LENGTH else _KINDS.get(test.measure, "domains")
    if test.in_ == "average":
        return f"on the average over {kind}"
    if test.in_ == "every":
        return f"in every {kind[:-1]}"
    return f"in {test.in_} {kind}" if test.in_ == "most" or quorum(test.in_) else f"on {test.in_}"
