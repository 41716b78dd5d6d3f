"""Arms along an axis: which make a line, what stands at its points, and how it is drawn."""

import math

import pytest

from bam_lab.report.axes import axes_of, lines_of
from bam_lab.report.axes_figure import axis_figures
from bam_lab.report.blocks import AVERAGE
from bam_lab.report.by_setting import result_of
from bam_lab.report.curves import rows_of
from bam_lab.report.stats import percent
from tests.report.fake_store import ARMS

SOFT = ARMS["soft"]
CROSS = {f"bam-{k}-{e}": {"top_k": k, "num_experts": e} for k in (1, 2) for e in (4, 8, 16)}


@pytest.fixture
def crossed(evidence_of):
    """Six arms of a cross; each further expert count is 1% better, each further k 2%."""
    effects = {
        name: -0.01 * (axes["num_experts"] // 4) - 0.02 * axes["top_k"]
        for name, axes in CROSS.items()
    }
    arms = {"btx": ARMS["btx"], **dict.fromkeys(CROSS, SOFT)}
    return evidence_of(
        replicates=3, arms=arms, axes=CROSS, effects=effects, sd=1e-4, undone=(("bam-2-8", 2),)
    )


def test_axes_are_those_with_several_values(crossed):
    assert axes_of(crossed) == {"top_k": (1, 2), "num_experts": (4, 8, 16)}


def test_a_line_joins_arms_that_differ_in_one_axis_alone(crossed):
    lines = {line.name: line for line in lines_of(crossed, "num_experts", AVERAGE)}
    assert set(lines) == {"bam, top_k 1", "bam, top_k 2"}
    points = lines["bam, top_k 2"].points
    assert [point.arm for point in points] == ["bam-2-4", "bam-2-8", "bam-2-16"]
    assert [point.value for point in points] == [4, 8, 16]
    gaps = [point.gap.mean for point in points]
    assert gaps == pytest.approx([-0.05, -0.06, -0.08], abs=1e-3)


def test_perplexity_is_the_baselines_and_the_gap_though_a_replicate_lacks(crossed):
    """With its own two replicates alone, the middle arm would jump by what blocks share."""
    for line in lines_of(crossed, "num_experts", "law"):
        levels = [point.nll - point.gap.mean for point in line.points]
        assert max(levels) - min(levels) < 1e-12


def test_a_setting_is_an_axis_and_baselines_are_a_line_of_it(evidence_of):
    settings = {
        "short": {"axes": {"tokens": 1000}},
        "long": {"axes": {"tokens": 4000}, "shift": 0.05},
    }
    evidence = evidence_of(replicates=3, settings=settings)
    lines = {line.name: line for line in lines_of(evidence, "tokens", AVERAGE)}
    assert lines["btx"].baseline and not lines["soft"].baseline
    assert all(point.gap is None for point in lines["btx"].points)
    gaps = [percent(point.gap.mean) for point in lines["soft"].points]
    assert gaps == pytest.approx([-2.0, 3.0], abs=0.2)


def test_what_is_changed_one_at_a_time_is_no_axis(evidence_of):
    axes = {"soft": {"case": "plain"}, "top-2": {"case": "frozen"}}
    assert axes_of(evidence_of(axes=axes)) == {}


def test_every_axis_has_a_figure_with_its_values(crossed):
    figures = axis_figures(crossed)
    assert list(figures) == ["top_k", "num_experts"]
    for value in (4, 8, 16):
        assert f">{value}<" in figures["num_experts"]
    assert "bam, top_k 2" in figures["num_experts"]


def test_an_axis_of_which_one_value_alone_is_measured_has_no_figure(evidence_of):
    arms = {"btx": ARMS["btx"], "bam-1": SOFT, "bam-2": SOFT}
    axes = {"bam-1": {"top_k": 1}, "bam-2": {"top_k": 2}}
    assert axis_figures(evidence_of(arms=arms, axes=axes, undone=(("bam-2", 0),))) == {}


def test_a_cross_of_two_axes_is_a_grid_too(crossed):
    (block,) = result_of(crossed, (), drawn=False).blocks
    (grid,) = block.grids
    assert [column.name for column in grid.columns] == ["4", "8", "16"]
    assert [row.head for row in grid.rows] == ["1", "2"]
    effects = {row.head: row.values[-1] for row in block.effects.rows}
    assert grid.rows[1].values[2].text == effects["bam-2-16"].text
    assert grid.rows[1].values[1].note.startswith("2 of 3 replicates")
    assert not grid.rows[1].note and not grid.rows[0].values[1].note


def test_many_arms_are_drawn_in_rows_with_the_baseline_in_each(evidence_of):
    arms = {"btx": ARMS["btx"], **{f"bam-{i}": SOFT for i in range(12)}}
    rows = rows_of(evidence_of(arms=arms))
    assert [row[0] for row in rows] == ["btx"] * 3
    assert sorted(arm for row in rows for arm in row[1:]) == sorted(set(arms) - {"btx"})
    assert rows_of(evidence_of()) == [["btx", "soft", "top-2", "top-1"]]


def test_levels_are_perplexities(crossed):
    (line, _) = lines_of(crossed, "num_experts", "law")
    own = [c.nll for c in crossed.cells if (c.name, c.domain, c.role) == ("bam-1-4", "law", "arm")]
    assert math.exp(line.points[0].nll) == pytest.approx(math.exp(sum(own) / 3), rel=1e-6)
