"""Every setting is an ablation of its own: its arms, its baseline, its dense models."""

import pytest

from bam_lab.report.blocks import AVERAGE, effect
from bam_lab.report.settings import shown, views
from bam_lab.report.stats import percent
from tests.report.fake_store import ARMS

SETTINGS = {
    "parallel": {"changes": {"model.block": "parallel"}},
    "serial": {"changes": {"model.block": "serial"}, "shift": 0.05, "model": {"block": "serial"}},
}


@pytest.fixture
def evidence(evidence_of):
    return evidence_of(replicates=3, settings=SETTINGS)


def test_without_settings_there_is_one_view(evidence_of):
    evidence = evidence_of()
    assert views(evidence) == (("", evidence),)
    assert evidence.baseline_of("soft") == "btx"


def test_a_view_holds_its_own_arms_and_stages(evidence):
    found = dict(views(evidence))
    assert list(found) == ["parallel", "serial"]
    for name, view in found.items():
        assert [arm.name for arm in view.arms] == [f"{arm}@{name}" for arm in ARMS]
        assert view.baseline == view.baseline_of(f"soft@{name}") == f"btx@{name}"
        assert view.settings == ()
        labels = [s.label for s in view.stages if s.name in ("seed_model", "expert", "mixture")]
        assert all(name in label for label in labels) and labels
        assert {curve.key for curve in view.curves} <= {stage.key for stage in view.stages}
        assert {receipt.arm for receipt in view.receipts} == {f"{arm}@{name}" for arm in ARMS}
    assert found["serial"].model["block"] == "serial"
    whole = {stage.key for stage in evidence.stages}
    assert whole == {stage.key for view in found.values() for stage in view.stages}


def test_dense_models_of_another_setting_are_not_in_a_view(evidence):
    for _, view in views(evidence):
        cells = [c for c in view.cells if (c.role, c.name, c.domain) == ("expert", "law", "law")]
        assert len(cells) == view.replicates


def test_effects_are_against_the_baseline_of_the_setting(evidence):
    found = dict(views(evidence))
    at = {n: effect(v, f"soft@{n}", v.baseline, AVERAGE) for n, v in found.items()}
    assert percent(at["parallel"].mean) == pytest.approx(-2.0, abs=0.2)
    assert percent(at["serial"].mean) == pytest.approx(3.0, abs=0.2)
    assert at["serial"].df == (3 - 1) * (len(ARMS) - 1)


def test_the_noise_is_against_the_baseline_of_the_setting(evidence):
    known = {(n.arm, n.domain): n.difference_se for n in evidence.noise}
    assert known["btx@serial", "law"] == known["btx@parallel", "law"] == 0


def test_missing_dense_cells_stay_with_their_setting(evidence_of):
    evidence = evidence_of(settings=SETTINGS, undone=(("soft@serial", 0),))
    gone = {n: [c for c in v.cells if c.nll is None] for n, v in views(evidence)}
    assert not gone["parallel"]
    assert {cell.name for cell in gone["serial"]} == {"soft@serial"}


def test_shown():
    assert shown("lory-16@serial") == "lory-16"
    assert shown("lory-16") == "lory-16"
