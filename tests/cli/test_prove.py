"""`prove`: every arm of a spec, on random models and on a store's; what is broken, and the exit."""

import json

import pytest

from bam_lab.record.proofs import verdicts
from bam_lab.upcycle import proofs_cost
from tests.cli.command import bam_lab

FIXTURE = "tests/fixtures/ablation.yaml"
SYSTEMS = "tests/fixtures/systems.yaml"


@pytest.fixture(autouse=True)
def _empty_store(tmp_path, monkeypatch):
    monkeypatch.setenv("BAM_LAB_STORE", str(tmp_path / "store"))


def test_all_proofs_of_a_spec_hold_or_are_declared():
    done = bam_lab("prove", SYSTEMS, "--arm", "lory", "--arm", "btx", "--arm", "btm")
    assert done.code == 0, done.err
    assert "UNEXPECTED: " not in done.out and "0 UNEXPECTED" in done.out
    assert "declared: lory: causality inside the first segment, training: the first" in done.out
    assert "btm: nothing to prove" in done.out
    assert "On random models" in " ".join(done.out.split())


def test_json_holds_the_facts():
    done = bam_lab("prove", FIXTURE, "--arm", "btx", "--json")
    assert done.code == 0, done.err
    (arm,) = json.loads(done.out)["arms"]
    assert (arm["arm"], arm["models"]) == ("btx", "random")
    assert arm["verdicts"] == [vars(verdict) for verdict in verdicts(arm["facts"])]
    assert arm["facts"]["cost"]["executed_training"]["holds"]
    assert arm["facts"]["cost"]["decoded_token"]["holds"]


def test_a_broken_proof_is_told_and_fails(monkeypatch):
    traced = proofs_cost.traced_flops
    monkeypatch.setattr(proofs_cost, "traced_flops", lambda *a, **k: 2 * traced(*a, **k))
    done = bam_lab("prove", FIXTURE, "--arm", "btx")
    assert done.code == 1
    assert "by formula" in done.out and "2 UNEXPECTED" in done.out


def test_an_unknown_arm_is_named():
    done = bam_lab("prove", FIXTURE, "--arm", "btxx")
    assert done.code == 2
    assert "--arm must be an arm of it, got btxx. Did you mean `btx`?" in " ".join(done.err.split())


def test_a_model_that_does_not_fit_is_refused(monkeypatch):
    from bam_lab.run import prove

    monkeypatch.setattr(prove.psutil, "virtual_memory", lambda: type("M", (), {"available": 1e3})())
    done = bam_lab("prove", FIXTURE, "--arm", "btx")
    assert done.code == 2
    assert "must fit in memory" in done.err
