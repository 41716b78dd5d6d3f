"""Every kind of test on constructed runs with known answers, over settings and axes too."""

import math
from collections.abc import Callable

import pytest

from bam_lab.report.claims import Judgement, judge
from bam_lab.report.evidence import Evidence, MeasureCell
from bam_lab.spec.claims import Claim
from tests.report.fake_store import LEVEL

DENSE = {"method": "dense"}
LORY = {
    name: {"method": "lory", "segment_len": 16, "first_segment": "uniform", "num_experts": count}
    for name, count in (("lory-16", 16), ("lory-4", 4), ("lory-8", 8))  # not in their order
}
AXES = {f"lory-{count}": {"num_experts": count} for count in (4, 8, 16)}
EvidenceOf = Callable[..., Evidence]


def claim(*tests: dict[str, object]) -> Claim:
    return Claim.model_validate(
        {
            "text": "a sentence",
            "source": {"paper": "p", "place": "q"},
            "printed": {"numbers": "none", "supports": "none printed"},
            "tests": list(tests),
        },
        strict=False,
    )


def verdict(evidence: Evidence, *tests: dict[str, object]) -> Judgement:
    return judge(evidence, {"X": claim(*tests)})[0]


def order(*arms: str, where: str = "every") -> dict[str, object]:
    return {"test": "order", "arms": list(arms), "in": where}


def equal(within: float | None = None, **more: object) -> dict[str, object]:
    test = {"test": "equal", "arm": "soft", "to": "btx", "in": "every", **more}
    return test if within is None else {**test, "within": within}


def interaction(*, gap: list[str], than: list[str]) -> dict[str, object]:
    return {"test": "interaction", "gap": gap, "than": than}


def ratio(**bound: float) -> dict[str, object]:
    return {"test": "ratio", "arm": "soft", "than": "btx", **bound}


EXTRA = {"soft": -0.03, "top-2": -0.02, "top-1": 0.02}


@pytest.mark.parametrize(
    ("effects", "test", "expected"),
    [
        (EXTRA, order("soft", "top-2", "btx", "top-1"), "holds"),
        (EXTRA, order("soft", "btx", "top-2", "top-1"), "contradicted"),
        ({"soft": -0.03}, order("soft", "btx", "top-1"), "no difference"),  # a tie at the end
        ({"soft": 0.0}, equal(), "holds"),
        ({"soft": 0.02}, equal(), "contradicted"),
        ({"soft": -0.02}, equal(), "contradicted"),
        ({"soft": 0.02}, equal(3.0), "holds"),
        ({"soft": 0.02}, ratio(at_most=1.05), "holds"),
        ({"soft": 0.02}, ratio(at_most=1.01), "contradicted"),
        ({"soft": 0.02}, ratio(at_least=1.01), "holds"),
        ({"soft": -0.02}, ratio(at_least=1.0), "contradicted"),
        ({"soft": 0.02}, ratio(within=0.05), "holds"),
        ({"soft": 0.1}, ratio(within=0.05), "contradicted"),
        # A 2x2: soft gains 3 points on btx, top-2 gains 1 on top-1.
        ({"soft": -0.03, "top-2": -0.01, "top-1": 0.0},
         interaction(gap=["soft", "btx"], than=["top-2", "top-1"]), "holds"),
        ({"soft": -0.03, "top-2": -0.01, "top-1": 0.0},
         interaction(gap=["top-2", "top-1"], than=["soft", "btx"]), "contradicted"),
        ({"soft": -0.03, "top-2": 0.01, "top-1": 0.04},
         interaction(gap=["soft", "btx"], than=["top-2", "top-1"]), "no difference"),
        # Of a domain alone, and of most.
        ({"soft": {"law": -0.02}}, {**order("soft", "btx"), "in": "law"}, "holds"),
        ({"soft": {"law": -0.02}}, {**order("soft", "btx"), "in": "code"}, "no difference"),
        ({"soft": {"law": -0.02, "code": -0.02, "math": -0.02}},
         {**order("soft", "btx"), "in": "most"}, "holds"),
        ({"soft": {"law": -0.02, "code": -0.02, "math": 0.02, "general": 0.02}},
         {**order("soft", "btx"), "in": "most"}, "contradicted"),
    ],
)  # fmt: skip
def test_each_kind_and_verdict(
    evidence_of: EvidenceOf, effects: dict[str, object], test: dict[str, object], expected: str
) -> None:
    evidence = evidence_of(replicates=5, effects=effects, sd=0.0005)
    assert verdict(evidence, test).verdict == expected


@pytest.mark.parametrize(
    "test",
    [
        order("soft", "btx"),
        equal(),
        ratio(at_most=1.5),
        interaction(gap=["soft", "btx"], than=["top-2", "top-1"]),
    ],
)
def test_one_replicate_has_a_direction_and_no_verdict(
    evidence_of: EvidenceOf, test: dict[str, object]
) -> None:
    found = verdict(evidence_of(replicates=1), test)
    assert (found.verdict, found.p) == ("not judged (1 replicate)", None)


@pytest.mark.parametrize(
    "test",
    [
        order("soft", "btx", "top-1"),
        equal(),
        ratio(at_most=1.5),
        interaction(gap=["soft", "btx"], than=["top-2", "top-1"]),
    ],
)
def test_a_missing_run_is_named(evidence_of: EvidenceOf, test: dict[str, object]) -> None:
    failed = tuple(("soft", replicate) for replicate in range(3))
    found = verdict(evidence_of(replicates=3, failed=failed), test)
    assert found.verdict == "not measured"
    assert "NaN" in " ".join(found.details)


# --- along an axis ---


def along(evidence_of: EvidenceOf, effects: dict[str, float], **more: object) -> Evidence:
    arms = {"btx": {"method": "btx"}, **LORY}
    return evidence_of(replicates=5, sd=0.0005, arms=arms, axes=AXES, effects=effects, **more)


def monotone(direction: str = "falling", **more: object) -> dict[str, object]:
    return {
        "test": "monotone", "arm": "lory", "axis": "num_experts", "direction": direction, **more
    }  # fmt: skip


@pytest.mark.parametrize(
    ("effects", "expected", "rising"),
    [
        ({"lory-4": 0.04, "lory-8": 0.02, "lory-16": 0.0}, "holds", "contradicted"),
        ({"lory-4": 0.04, "lory-8": 0.04, "lory-16": 0.0}, "holds", "contradicted"),  # flat, then
        ({"lory-4": 0.02, "lory-8": 0.06, "lory-16": 0.0}, "contradicted", "contradicted"),
        ({"lory-4": 0.0, "lory-8": 0.0, "lory-16": 0.0}, "no difference", "no difference"),
        ({"lory-4": 0.0, "lory-8": 0.02, "lory-16": 0.04}, "contradicted", "holds"),
    ],
)
def test_monotone_in_the_order_of_numbers(
    evidence_of: EvidenceOf, effects: dict[str, float], expected: str, rising: str
) -> None:
    evidence = along(evidence_of, effects)
    assert verdict(evidence, monotone()).verdict == expected
    assert verdict(evidence, monotone("rising")).verdict == rising


def test_monotone_names_what_is_not_there(evidence_of: EvidenceOf) -> None:
    found = verdict(along(evidence_of, {}), monotone(axis="segment_len"))
    assert found.verdict == "out of scope"
    assert "no arm lory with more than one segment_len" in found.details[0]


# --- under settings ---

TWO = {"parallel": {}, "serial": {"shift": 0.03}}
BETTER = {"test": "better", "arm": "soft", "than": "btx", "in": "average"}


def under(evidence_of: EvidenceOf, effects: dict[str, float], **more: object) -> Evidence:
    return evidence_of(replicates=5, sd=0.0005, settings=TWO, effects=effects, **more)


@pytest.mark.parametrize(
    ("effect", "setting", "expected"),
    [
        (-0.05, "every", "holds"),  # -0.05 and -0.02
        (-0.02, "every", "contradicted"),  # -0.02 and +0.01
        (-0.02, "at least 1 of 2", "holds"),
        (0.02, "at least 1 of 2", "contradicted"),
        (-0.02, "parallel", "holds"),
        (-0.02, "serial", "contradicted"),
        (-0.02, "at least 1 of 3", "out of scope"),
        (-0.02, "other", "out of scope"),
    ],
)
def test_a_claim_is_about_every_setting_unless_it_says_which(
    evidence_of: EvidenceOf, effect: float, setting: str, expected: str
) -> None:
    found = verdict(under(evidence_of, {"soft": effect}), {**BETTER, "setting": setting})
    assert found.verdict == expected


def test_arms_of_two_settings_are_compared(evidence_of: EvidenceOf) -> None:
    evidence = under(evidence_of, {"soft": -0.05})
    across = {"test": "better", "arm": "soft@parallel", "than": "soft@serial", "in": "average"}
    assert verdict(evidence, across).verdict == "holds"
    assert verdict(evidence, {**across, "arm": "soft@other"}).verdict == "out of scope"
    more = interaction(gap=["soft@parallel", "btx@parallel"], than=["soft@serial", "btx@serial"])
    assert verdict(evidence, more).verdict == "holds"
    assert verdict(evidence, {**more, "gap": more["than"], "than": more["gap"]}).verdict == (
        "contradicted"
    )


def test_an_axis_may_be_the_settings(evidence_of: EvidenceOf) -> None:
    evidence = under(evidence_of, {"soft": -0.05})
    test = {"test": "monotone", "arm": "soft", "axis": "setting", "direction": "rising"}
    assert verdict(evidence, test).verdict == "holds"
    assert verdict(evidence, {**test, "direction": "falling"}).verdict == "contradicted"


def test_a_trend_over_budgets_is_the_last_gap_against_the_first(evidence_of: EvidenceOf) -> None:
    settings = {
        "1x": {"axes": {"budget": 1.0}, "shift": 0.03},
        "2x": {"axes": {"budget": 2.0}, "shift": 0.01},
        "4x": {"axes": {"budget": 4.0}},
    }
    evidence = evidence_of(replicates=5, sd=0.0005, settings=settings, effects={"soft": -0.01})
    test = {"test": "trend", "gap": ["soft", "btx"], "direction": "growing"}
    assert verdict(evidence, test).verdict == "holds"
    assert verdict(evidence, {**test, "direction": "shrinking"}).verdict == "contradicted"


# --- measures ---


def measured(
    evidence: Evidence, measure: str, values: dict[str, list[float]], **more: object
) -> Evidence:
    cells = tuple(
        MeasureCell.model_validate(
            {"arm": arm, "replicate": r, "measure": measure, "value": value, **more}
        )
        for arm, found in values.items()
        for r, value in enumerate(found)
    )
    return evidence.model_copy(update={"measures": (*evidence.measures, *cells)})


def by(measure: str, arm: str = "soft", than: str = "btx") -> dict[str, object]:
    return {"test": "better", "arm": arm, "than": than, "measure": measure}


def test_a_measure_is_compared_in_its_own_unit_and_direction(evidence_of: EvidenceOf) -> None:
    evidence = measured(
        evidence_of(replicates=3),
        "load_min",
        {"soft": [0.20, 0.21, 0.19], "btx": [0.01, 0.02, 0.01]},
    )
    found = verdict(evidence, by("load_min"))
    assert found.verdict == "holds"
    assert found.parts[0].leaves[0].size().startswith("+0.187 [")  # as it is: more is better
    assert verdict(evidence, by("load_min", "btx", "soft")).verdict == "contradicted"


def test_seconds_are_compared_as_ratios(evidence_of: EvidenceOf) -> None:
    evidence = evidence_of(replicates=3)
    kept = tuple(cell for cell in evidence.measures if cell.measure != "seconds_per_step")
    evidence = measured(
        evidence.model_copy(update={"measures": kept}),
        "seconds_per_step",
        {"soft": [1.2, 1.21, 1.19], "btx": [1.0, 1.01, 0.99]},
    )
    test = {**ratio(at_most=1.3), "measure": "seconds_per_step"}
    assert verdict(evidence, test).verdict == "holds"
    assert verdict(evidence, {**test, "at_most": 1.1}).verdict == "contradicted"


def test_what_no_stage_measures_says_so(evidence_of: EvidenceOf) -> None:
    found = verdict(evidence_of(replicates=3), by("latency"))
    assert found.verdict == "not measured"
    assert "latency (seconds of a completion, by rounds) is not asked for" in found.details[0]
    found = verdict(evidence_of(replicates=3), by("load_min"))
    assert found.verdict == "not measured"
    assert "soft has no load_min" in found.details[0]


def test_arithmetic_is_judged_with_one_replicate(evidence_of: EvidenceOf) -> None:
    found = verdict(evidence_of(replicates=1), {**ratio(at_least=1.5), "measure": "params_total"})
    assert found.verdict == "contradicted"  # the fake gives all arms the same
    found = verdict(
        evidence_of(replicates=1), {**equal(), "in": "average"} | {"measure": "perplexity"}
    )
    assert found.verdict == "not judged (1 replicate)"


def test_bits_per_byte_follow_the_losses(evidence_of: EvidenceOf) -> None:
    evidence = evidence_of(replicates=5, effects={"soft": -0.05}, sd=0.0005)
    found = verdict(evidence, {**BETTER, "measure": "bits_per_byte"})
    assert found.verdict == "holds"
    change = found.parts[0].leaves[0].difference
    assert change is not None
    # Bits are proportional to nats: a twentieth of a nat, of each domain's level.
    expected = [math.log(1 - 0.05 / LEVEL[domain]) for domain in evidence.domains]
    assert change.mean == pytest.approx(math.fsum(expected) / 4, rel=0.02)


def test_what_another_program_measured_is_judged(evidence_of: EvidenceOf) -> None:
    seconds = {"soft": [6.1, 6.2, 6.3], "btx": [4.8, 4.8, 4.9]}
    evidence = measured(evidence_of(replicates=3), "latency", seconds)
    test = {**ratio(at_most=1.5), "measure": "latency"}
    assert verdict(evidence, test).verdict == "holds"
    assert verdict(evidence, {**test, "at_most": 1.1}).verdict == "contradicted"


ABOVE = {"test": "above_chance", "arm": "soft", "measure": "needle_accuracy"}


def test_above_chance(evidence_of: EvidenceOf) -> None:
    evidence = evidence_of(replicates=2)
    assert verdict(evidence, ABOVE).verdict == "not measured"
    for right, expected in ((0.5, "holds"), (0.1, "contradicted"), (0.27, "inconclusive")):
        found = measured(evidence, "needle_accuracy", {"soft": [right] * 2}, items=200, chance=0.25)
        assert verdict(found, ABOVE).verdict == expected
    mixed = measured(evidence, "needle_accuracy", {"soft": [0.5, 0.27]}, items=200, chance=0.25)
    assert verdict(mixed, ABOVE).verdict == "inconclusive"  # every replicate has to be


def test_tasks_are_places(evidence_of: EvidenceOf) -> None:
    evidence = evidence_of(replicates=3)
    for task, gain in (("one", 0.10), ("two", 0.08), ("three", -0.05)):
        values = {"soft": [0.5 + gain, 0.51 + gain, 0.49 + gain], "btx": [0.5, 0.51, 0.49]}
        evidence = measured(evidence, "task_accuracy", values, domain=task)
    test = by("task_accuracy")
    assert verdict(evidence, {**test, "in": "average"}).verdict == "holds"
    assert verdict(evidence, {**test, "in": "at least 2 of 3"}).verdict == "holds"
    assert verdict(evidence, {**test, "in": "every"}).verdict == "contradicted"
    assert verdict(evidence, {**test, "in": "three"}).verdict == "contradicted"
    assert verdict(evidence, {**test, "in": "four"}).verdict == "out of scope"


# --- experts ---


@pytest.mark.parametrize(("effect", "expected"), [(-0.3, "holds"), (0.0, "contradicted")])
def test_an_arm_against_its_own_experts(
    evidence_of: EvidenceOf, effect: float, expected: str
) -> None:
    evidence = evidence_of(replicates=5, effects={"soft": effect}, sd=0.0005)
    found = verdict(evidence, {"test": "at_home", "arm": "soft"})
    assert found.verdict == expected
    assert [leaf.place for leaf in found.parts[0].leaves] == ["code", "law", "math"]


def experts(arm: str, than: str, text: str) -> dict[str, object]:
    return {"test": "better_experts", "arm": arm, "than": than, "text": text}


def test_the_experts_of_two_arms(evidence_of: EvidenceOf) -> None:
    """Soft's experts read more general text: better at home by 0.05, worse on general text."""
    evidence = evidence_of(replicates=4)
    labels = {"code": "code with 50% general", "law": "law with 50% general", "math": "math"}
    others = [
        cell.model_copy(
            update={"name": labels[cell.name], "nll": cell.nll + (-0.05 if home else 0.02)}
        )
        for cell in evidence.cells
        if cell.role == "expert" and cell.nll is not None
        for home in [cell.domain == cell.name]
        if labels[cell.name] != cell.name
    ]
    arms = tuple(
        arm.model_copy(update={"branches": tuple(labels.values())}) if arm.name == "soft" else arm
        for arm in evidence.arms
    )
    evidence = evidence.model_copy(update={"cells": (*evidence.cells, *others), "arms": arms})
    found = verdict(evidence, experts("soft", "btx", "own"))
    assert [leaf.place for leaf in found.parts[0].leaves] == [
        "code expert", "law expert", "math expert"
    ]  # fmt: skip
    assert found.verdict == "no difference"  # the math experts are the same
    assert [leaf.verdict(0.005) for leaf in found.parts[0].leaves][:2] == ["holds"] * 2
    found = verdict(evidence, experts("soft", "btx", "general"))
    assert [leaf.verdict(0.005) for leaf in found.parts[0].leaves][:2] == ["contradicted"] * 2
    assert verdict(evidence, experts("btx", "top-1", "own")).verdict == "out of scope"


# --- over training ---


def test_a_gap_that_grows_in_training(evidence_of: EvidenceOf) -> None:
    evidence = _with_gaps(evidence_of(replicates=3), lambda share: -0.05 * share)
    test = {"test": "trend", "gap": ["soft", "btx"], "direction": "growing"}
    assert verdict(evidence, test).verdict == "holds"
    assert verdict(evidence, {**test, "direction": "shrinking"}).verdict == "contradicted"
    flat = _with_gaps(evidence_of(replicates=3), lambda share: -0.05)
    assert verdict(flat, test).verdict == "no difference"


def test_tokens_to_the_loss_of_another_arm(evidence_of: EvidenceOf) -> None:
    # Soft falls from 2.8 by 2 nats, btx ends at 2: soft is there at 0.4 of the tokens.
    evidence = _with_gaps(evidence_of(replicates=3), lambda share: -1.2)
    test = {"test": "reaches", "arm": "soft", "target": "btx", "share": 0.5, "of": "tokens"}
    assert verdict(evidence, test).verdict == "holds"
    assert verdict(evidence, {**test, "share": 0.1}).verdict == "contradicted"
    leaf = verdict(evidence, test).parts[0].leaves[0]
    assert leaf.size() == "0.400 [0.399, 0.402]"
    never = _with_gaps(evidence_of(replicates=3), lambda share: 1.0)
    found = verdict(never, {**test, "share": 0.9})
    assert found.verdict == "contradicted"  # it counts with all that it spent


def _with_gaps(evidence: Evidence, gap: Callable[[float], float]) -> Evidence:
    """Return evidence whose mixture phases fall by one nat in 20 stretches; soft by a gap more."""
    curves = []
    for curve in evidence.curves:
        if curve.name == "mixture" and curve.arm in ("btx", "soft"):
            noise = 0.001 * (curve.replicate or 0) if curve.arm == "soft" else 0.0
            valid = tuple(
                (50 * i, {d: _loss(i / 20, curve.arm, gap) + noise for d in evidence.domains})
                for i in range(1, 21)
            )
            curve = curve.model_copy(update={"valid": valid, "step_tokens": 4096.0})
        curves.append(curve)
    return evidence.model_copy(update={"curves": tuple(curves)})


def _loss(share: float, arm: str, gap: Callable[[float], float]) -> float:
    return 4 - 2 * share + (gap(share) if arm == "soft" else 0.0)
