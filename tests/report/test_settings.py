"""Every setting is an ablation of its own: its arms, its baseline, its dense models."""

import re

import pytest

from bam_lab.report.blocks import AVERAGE, effect
from bam_lab.report.by_setting import result_of
from bam_lab.report.evidence import read_results
from bam_lab.report.render import published_tables, write
from bam_lab.report.sections import specialisations
from bam_lab.report.settings import dense_groups, shown, views
from bam_lab.report.stats import percent
from bam_lab.report.step0 import batch_loss_table
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


def test_one_table_stands_over_all_settings(evidence):
    result = result_of(evidence, (), drawn=False)
    table = result.over_settings
    assert [column.group for column in table.columns] == ["parallel", "serial"]
    soft = next(row for row in table.rows if row.head == "soft")
    assert [value.number for value in soft.values] == pytest.approx([-2.0, 3.0], abs=0.2)
    for block, value in zip(result.blocks, soft.values, strict=True):
        own = next(row for row in block.effects.rows if row.head == "soft")
        assert own.values[-1] == value
    assert table.rows[0].mark == "baseline" and table.rows[0].head == "btx"
    assert result.first == table


def test_a_note_of_one_setting_stays_with_its_cell(evidence_of):
    evidence = evidence_of(replicates=3, settings=SETTINGS, failed=(("soft@serial", 1),))
    table = result_of(evidence, (), drawn=False).over_settings
    soft = next(row for row in table.rows if row.head == "soft")
    assert soft.note == soft.values[0].note == ""
    assert "2 of 3 replicates" in soft.values[1].note


def test_the_paper_is_shown_once_where_it_printed_one_setting(evidence_of):
    evidence = evidence_of(replicates=2, settings=SETTINGS)
    table = result_of(evidence, published_tables(evidence), drawn=False).over_settings
    assert [column.group for column in table.columns] == ["parallel", "serial", "printed"]
    soft = next(row for row in table.rows if row.head == "soft")
    assert soft.values[2].number == pytest.approx(-2.09, abs=0.01)


def test_dense_models_are_told_apart_only_where_they_differ(evidence, evidence_of):
    assert [names for names, _ in dense_groups(evidence)] == [("parallel",), ("serial",)]
    assert dense_groups(evidence_of())[0][0] == ()
    heads = [row.head for row in batch_loss_table(evidence).rows]
    assert "dense: seed_model @serial" in heads
    assert len(specialisations(evidence, ())) == 2
    shared = evidence.model_copy(update={"stages": _shared(evidence)})
    assert [names for names, _ in dense_groups(shared)] == [()]


def _shared(evidence):
    """Return the stages as if both settings used the dense models of the first."""
    kept = [s for s in evidence.stages if s.arm or "@serial" not in s.label]
    first = {s.domain: s.key for s in kept if s.name == "expert" and s.replicate == 0}
    inputs = {f"expert{i}": key for i, key in enumerate(first.values())}
    return tuple(
        s.model_copy(update={"inputs": inputs}) if s.name == "upcycle" else s
        for s in kept
        if s.name != "expert" or s.key in inputs.values()
        if s.name != "evaluate" or s.arm
    )


def test_the_page_has_a_block_for_each_setting(evidence_of, tmp_path):
    evidence = evidence_of(replicates=2, settings=SETTINGS)
    rendered = write(evidence, tmp_path)
    page = rendered.paths["report.html"].read_text()
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    for name in ("by-setting", "effects-parallel", "effects-serial", "absolute-serial"):
        assert name in ids
    assert "model.block = serial" in page
    effects = rendered.summary["effects"]
    assert {(e["arm"], e["setting"]) for e in effects} >= {("soft", "serial"), ("btx", "parallel")}
    assert read_results(rendered.paths["results.json"]) == evidence
