"""Measures beside losses: by arithmetic, from ledgers, from the metrics of training."""

import math

import pytest

from bam_lab.report.costs import cost_of
from bam_lab.spec.measures import MEASURES
from tests.report.fake_store import ARMS


def values(evidence, measure, arm="soft"):
    return [c.value for c in evidence.measures if (c.measure, c.arm) == (measure, arm)]


def test_every_measure_that_is_there_has_its_cells(evidence_of):
    evidence = evidence_of(replicates=2)
    for name in ("training_flops_per_token", "kv_bytes", "inference_flops", "params_total"):
        assert values(evidence, name) == [cost_of(evidence, "soft", name)]
    # The fake ledgers: 800 steps in 61.5 s; branches of 4,096,000 tokens in 61.5 s each.
    assert values(evidence, "seconds_per_step") == pytest.approx([61.5 / 800] * 2)
    tokens = 3 * 4_096_000 + 800 * 4096
    assert values(evidence, "tokens_per_device_second") == pytest.approx([tokens / (4 * 61.5)] * 2)
    # Branches side by side, then the mixture phase.
    assert values(evidence, "critical_path_seconds") == pytest.approx([2 * 61.5] * 2)
    assert {cell.measure for cell in evidence.measures} <= MEASURES.keys()


def test_what_is_measured_names_its_runs(evidence_of):
    evidence = evidence_of(replicates=1)
    done = {stage.key for stage in evidence.stages if stage.done}
    found = [cell for cell in evidence.measures if cell.measure == "seconds_per_step"]
    assert found
    for cell in found:
        assert set(cell.runs) <= done and cell.runs


def test_an_arm_that_has_not_run_has_costs_alone(evidence_of):
    evidence = evidence_of(replicates=1, undone=(("soft", 0),))
    assert values(evidence, "kv_bytes") != []
    assert values(evidence, "seconds_per_step") == []


def test_activated_tokens_count_the_branches(evidence_of):
    evidence = evidence_of(replicates=1)
    found = cost_of(evidence, "btx", "activated_tokens")
    assert found == 587_234 * 1000 * 4096 + 3 * 550_000 * 4_096_000


def test_costs_are_those_of_the_setting(evidence_of):
    wide = {"model": {"dim": 128, "head_dim": 32}}
    evidence = evidence_of(replicates=1, settings={"small": {}, "wide": wide})
    small, large = (values(evidence, "kv_bytes", f"soft@{s}")[0] for s in ("small", "wide"))
    assert large == 2 * small


def test_what_has_no_cost_says_why(evidence_of):
    smear = {"method": "smear", "num_experts": 4}
    evidence = evidence_of(replicates=1, arms={**ARMS, "smear": smear})
    found = [c for c in evidence.measures if (c.arm, c.measure) == ("smear", "inference_flops")]
    assert found[0].value is None and found[0].missing
    assert math.isfinite(values(evidence, "inference_flops")[0])
