"""Compare arms by any measure: the values behind a comparison, and weighted sums of arms.

Values are logarithms where a measure is compared as a ratio, so that every difference of them is a
relative change; and with `better` given they are turned so that lower is better.
"""

import math
from collections.abc import Mapping, Sequence

from bam_lab.errors import SpecError
from bam_lab.report.blocks import AVERAGE, arm_blocks, arm_cells, missing_reason
from bam_lab.report.costs import cost_of
from bam_lab.report.evidence import Evidence, MeasureCell
from bam_lab.report.settings import views
from bam_lab.report.stats import Blocks, Difference, block_contrast, summed
from bam_lab.spec.measures import MEASURES, MeasureName, unmeasured

GROWTH = "growth"
"""A place: the value at a measure's last place less that at its first, as prompts grow."""
EXACT = 10**6
"""Degrees of freedom of what has no error: any number would do."""


class NotMeasured(Exception):
    """Say which number is missing."""


class OutOfScope(Exception):
    """Say why this ablation is not about the test."""


def contrast(
    evidence: Evidence,
    weights: Mapping[str, float],
    measure: MeasureName,
    domain: str,
    *,
    better: bool = True,
) -> Difference:
    """Estimate a weighted sum of arms by one measure, in one domain or on their average.

    Arms are paired within a replicate and a setting. Where the weights add up to 0 in each setting,
    settings are estimated apart and added up: each has its own error. Else their arms are taken
    together, paired by replicate.

    Args:
        evidence: the whole of it.
        weights: arm -> weight, adding up to 0.
        measure: what is compared.
        domain: a domain, `AVERAGE` (`average@suite` of one suite), `GROWTH`, or empty for a measure
            without domains.
        better: turn the values so that lower is better; else lower is lower.

    Raises:
        NotMeasured: a number is missing, and which.
    """
    places_of(evidence, measure)
    sign = -1.0 if better and MEASURES[measure].better == "higher" else 1.0
    if MEASURES[measure].source == "costs":
        logs = {arm: math.log(cost_value(evidence, arm, measure)) for arm in weights}
        return Difference(
            math.fsum(w * sign * logs[arm] for arm, w in weights.items()), 0.0, EXACT, 0, 2
        )
    signed = {arm: weight * sign for arm, weight in weights.items()}
    groups = _by_setting(evidence, signed)
    if all(abs(math.fsum(group.values())) < 1e-9 for group in groups.values()):
        return summed(
            [
                _estimated(view, groups[name], measure, domain)
                for name, view in views(evidence)
                if name in groups
            ]
        )
    return _estimated(_together(evidence, set(groups)), signed, measure, domain)


def values_of(evidence: Evidence, measure: MeasureName, domain: str) -> Blocks:
    """Return {(arm, replicate): value}, the logarithm where the measure is compared as a ratio."""
    if measure == "perplexity":
        return arm_blocks(evidence, domain)
    if measure == "bits_per_byte":
        return _bits(evidence, domain)
    places = places_of(evidence, measure)
    base, at, suite = domain.partition("@")
    if base == AVERAGE:
        chosen = [p for p in places if not at or p.partition("@")[2] == suite]
        return average_of([values_of(evidence, measure, place) for place in chosen])
    if domain == GROWTH:
        first, last = (values_of(evidence, measure, places[end]) for end in (0, -1))
        return {key: last[key] - first[key] for key in last if key in first}
    log = MEASURES[measure].margin is None
    cells = [c for c in evidence.measures if (c.measure, c.domain) == (measure, domain)]
    return {
        (cell.arm, cell.replicate or 0): _log(cell) if log else cell.value
        for cell in cells
        if cell.value is not None
    }


def places_of(evidence: Evidence, measure: MeasureName) -> tuple[str, ...]:
    """Return the domains of a measure, its tasks, or an empty text for one without.

    Raises:
        NotMeasured: it is one that no stage measures yet, and nothing else has.
    """
    if MEASURES[measure].source == "heldout":
        return evidence.domains
    found = dict.fromkeys(cell.domain for cell in evidence.measures if cell.measure == measure)
    if not found and (why := unmeasured(measure)):
        raise NotMeasured(why)
    return tuple(found)


def cost_value(evidence: Evidence, arm: str, measure: MeasureName) -> float:
    """Return what arithmetic says of an arm.

    Raises:
        NotMeasured: the arm has no such cost, and why.
    """
    view = dict(views(evidence))[evidence.arm(arm).setting]
    try:
        value = cost_of(view, arm, measure)
    except SpecError as error:
        raise NotMeasured(str(error)) from None
    if value <= 0:
        raise NotMeasured(f"{measure} of {arm} is {value:g}: no ratio of it")
    return value


def _log(cell: MeasureCell) -> float:
    assert cell.value is not None
    if cell.value <= 0:
        raise NotMeasured(f"{cell.measure} of {cell.arm} is {cell.value:g}: no ratio of it")
    return math.log(cell.value)


def _bits(evidence: Evidence, domain: str) -> Blocks:
    if domain == AVERAGE:
        return average_of([_bits(evidence, name) for name in evidence.domains])
    return {
        (cell.name, cell.replicate or 0): math.log(cell.bits_per_byte)
        for arm in evidence.arms
        for cell in arm_cells(evidence, arm.name, domain)
        if cell.bits_per_byte
    }


def average_of(parts: Sequence[Blocks]) -> Blocks:
    """Return the mean of several values of each run; of runs that have all of them."""
    whole = set(parts[0]).intersection(*parts[1:])
    return {key: math.fsum(part[key] for part in parts) / len(parts) for key in sorted(whole)}


def _by_setting(evidence: Evidence, weights: Mapping[str, float]) -> dict[str, dict[str, float]]:
    groups: dict[str, dict[str, float]] = {}
    for arm, weight in weights.items():
        groups.setdefault(evidence.arm(arm).setting, {})[arm] = weight
    return groups


def _together(evidence: Evidence, settings: set[str]) -> Evidence:
    """Return the evidence with the arms of some settings alone."""
    names = {arm.name for arm in evidence.arms if arm.setting in settings}
    return evidence.model_copy(
        update={
            "cells": tuple(c for c in evidence.cells if c.role != "arm" or c.name in names),
            "measures": tuple(cell for cell in evidence.measures if cell.arm in names),
        }
    )


def _estimated(
    evidence: Evidence, weights: Mapping[str, float], measure: MeasureName, domain: str
) -> Difference:
    found = block_contrast(values_of(evidence, measure, domain), weights)
    if found is None:
        raise NotMeasured(_missing(evidence, tuple(weights), measure, domain))
    return found


def _missing(evidence: Evidence, arms: Sequence[str], measure: str, domain: str) -> str:
    """Say why some arms cannot be compared."""
    where = (domain,) if domain in evidence.domains else evidence.domains
    told = (c.missing for c in evidence.measures if c.measure == measure and c.arm in arms)
    reasons = (*told, *(missing_reason(evidence, arm, where) for arm in arms))
    if why := next(filter(None, reasons), ""):
        return why
    found = {cell.arm for cell in evidence.measures if cell.measure == measure}
    for arm in arms:
        if domain == "" and arm not in found:
            return f"{arm} has no {measure}"
    return f"{' and '.join(arms)} share no replicate"
