"""From a store to evidence: the right rows, and a reason for every missing one."""

import json
import math
import shutil

import pytest

from bam_lab.errors import InputError
from bam_lab.report.blocks import AVERAGE, arm_blocks, dense_blocks, effect
from bam_lab.report.collect import collect
from bam_lab.report.evidence import Evidence
from tests.report.fake_store import LEVEL, Fake, make_store


def cell(evidence, role, name, domain, replicate=0):
    return next(
        c
        for c in evidence.cells
        if (c.role, c.name, c.domain, c.replicate) == (role, name, domain, replicate)
    )


def test_cells_hold_the_test_split_of_whole_domains(tmp_path):
    fake = Fake(effects={"soft": -0.02})
    evidence = collect(tmp_path, make_store(tmp_path, fake))
    for domain in evidence.domains:
        assert cell(evidence, "arm", "soft", domain).nll == fake.nll("soft", 0, domain)
    assert cell(evidence, "seed_model", "seed_model", "law", None).nll == LEVEL["law"] + 0.4
    assert cell(evidence, "step-0", "btx", "law").nll == pytest.approx(LEVEL["law"] + 0.3)


def test_a_cell_knows_the_runs_that_made_it(tmp_path):
    evidence = collect(tmp_path, make_store(tmp_path, Fake()))
    model, evaluation = cell(evidence, "arm", "soft", "law").runs
    stages = {stage.key: stage for stage in evidence.stages}
    assert stages[model].label == "mixture soft r0"
    assert stages[evaluation].label == "evaluate mixture soft r0"


def test_a_failed_run_is_a_missing_cell_with_its_reason(tmp_path):
    evidence = collect(tmp_path, make_store(tmp_path, Fake(failed=(("top-1", 0),))))
    gone = cell(evidence, "arm", "top-1", "code")
    assert gone.nll is None
    assert gone.runs == ()
    assert gone.missing == "mixture top-1 r0: the loss is NaN at step 412 (learning rate 0.0016)"


def test_a_failed_branch_explains_the_arms_that_need_it(tmp_path):
    index = make_store(tmp_path, Fake())
    stages = json.loads(index.read_text())["stages"]
    lost = {"expert law r0", "upcycle soft r0", "mixture soft r0", "evaluate mixture soft r0"}
    for stage in stages:
        if stage["label"] in lost:
            shutil.rmtree(tmp_path / "stages" / stage["key"])
        if stage["label"] == "expert law r0":
            failure = tmp_path / "failures" / f"{stage['key']}.json"
            failure.parent.mkdir(exist_ok=True)
            failure.write_text(json.dumps({"reason": "the disk is full"}))
    evidence = collect(tmp_path, index)
    assert cell(evidence, "arm", "soft", "math").missing == "expert law r0: the disk is full"


def test_a_stage_without_done_is_not_read(tmp_path):
    index = make_store(tmp_path, Fake())
    for stage in json.loads(index.read_text())["stages"]:
        if stage["label"] == "evaluate mixture soft r0":
            (tmp_path / "stages" / stage["key"] / "DONE").unlink()
    missing = cell(collect(tmp_path, index), "arm", "soft", "law").missing
    assert missing == "not run yet: evaluate mixture soft r0"


def test_nothing_done_but_the_index(tmp_path):
    index = make_store(tmp_path, Fake())
    shutil.rmtree(tmp_path / "stages")
    evidence = collect(tmp_path, index)
    assert all(c.missing == "not run yet: corpus" for c in evidence.cells)
    assert evidence.curves == evidence.noise == evidence.provenance == ()


def test_average_is_over_replicates_that_have_every_domain(tmp_path):
    fake = Fake(replicates=3, undone=(("soft", 1),), effects={"soft": -0.02})
    evidence = collect(tmp_path, make_store(tmp_path, fake))
    blocks = arm_blocks(evidence, AVERAGE)
    assert {r for arm, r in blocks if arm == "soft"} == {0, 2}
    mean = sum(fake.nll("soft", 0, d) for d in evidence.domains) / 4
    assert blocks["soft", 0] == pytest.approx(mean)
    assert effect(evidence, "soft", "btx", AVERAGE).mean == pytest.approx(-0.02)


def test_a_shared_seed_model_stands_in_every_replicate(tmp_path):
    evidence = collect(tmp_path, make_store(tmp_path, Fake(replicates=3)))
    blocks = dense_blocks(evidence, "code")
    assert {r for name, r in blocks if name == "seed_model"} == {0, 1, 2}
    assert len(blocks) == 12


def test_noise_of_a_difference_is_that_of_paired_documents(tmp_path):
    # The fake's documents move together, so differences have no noise while levels do.
    evidence = collect(tmp_path, make_store(tmp_path, Fake(effects={"soft": -0.02})))
    noise = next(n for n in evidence.noise if (n.arm, n.domain) == ("soft", "law"))
    assert noise.difference_se == pytest.approx(0, abs=1e-12)
    assert noise.bits_per_byte_se > 0.01
    assert (noise.documents, noise.sources) == (12, 2)


def test_curves_are_thinned_and_end_at_the_last_step(tmp_path):
    evidence = collect(tmp_path, make_store(tmp_path, Fake()))
    curve = next(c for c in evidence.curves if c.name == "seed_model")
    assert len(curve.train) <= 80
    assert curve.train[-1][0] == 2000
    assert curve.step_tokens == 8_192_000 / 2000
    assert curve.final["balance_loss_ffn"] == pytest.approx(1.05)
    assert math.isclose(curve.final["loss"], 3.4, abs_tol=1e-3)


def test_evidence_survives_its_file(tmp_path):
    fake = Fake(replicates=2, sd=0.01, failed=(("top-1", 0),))
    evidence = collect(tmp_path, make_store(tmp_path, fake))
    assert Evidence.model_validate_json(evidence.model_dump_json()) == evidence


def test_mixed_numerics_are_refused(tmp_path):
    index = make_store(tmp_path, Fake())
    manifest = next((tmp_path / "stages").glob("mixture-*")) / "manifest.json"
    facts = json.loads(manifest.read_text())
    facts["numerics"]["precision"] = "bf16-mixed"
    manifest.write_text(json.dumps(facts))
    with pytest.raises(InputError, match=r"one kind of numerics.*bf16-mixed.*float32"):
        collect(tmp_path, index)


def test_no_index_says_what_to_do(tmp_path):
    with pytest.raises(InputError, match=r"index\.json is missing.*bam-lab run"):
        collect(tmp_path, tmp_path / "ablations" / "x" / "index.json")
