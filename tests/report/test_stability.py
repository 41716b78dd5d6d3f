"""Stability: spikes by one rule, quantiles of norms, churn, spread, and what older logs lack."""

import json
from statistics import fmean, stdev

import numpy as np
import pytest

from bam_lab.report.render import render, render_results
from bam_lab.report.stability import NO_CHURN, NOT_LOGGED, spikes_of
from bam_lab.report.stability_table import stability_table
from bam_lab.spec.measures import MEASURES
from tests.report.fake_store import ARMS, Fake, make_store

FALLING = [4 - 0.01 * i for i in range(40)]
EVERY = tuple(ARMS)


def with_spike(height, at=20, width=1):
    losses = list(FALLING)
    for i in range(at, at + width):
        losses[i] += height
    return losses


@pytest.mark.parametrize(
    ("losses", "count"),
    [
        (FALLING, 0),
        ([4.0] * 40, 0),
        (with_spike(1.0), 1),
        (with_spike(1.0, width=4), 1),  # one spike, four rows long
        ([max(a, b) for a, b in zip(with_spike(1.0, 15), with_spike(1.0, 30), strict=True)], 2),
        (with_spike(0.04), 0),  # too low to be one
        (with_spike(1.0, at=5), 0),  # too early to know what the loss should be
        ([], 0),
    ],
)
def test_spikes(losses, count):
    assert spikes_of(losses) == count


def cells(evidence, measure, arm="soft"):
    return [c for c in evidence.measures if (c.measure, c.arm) == (measure, arm)]


def values(evidence, measure, arm="soft"):
    return [cell.value for cell in cells(evidence, measure, arm)]


def shown(evidence, arm, column):
    table = stability_table(evidence)
    index = [c.name for c in table.columns].index(column)
    row = next(row for row in table.rows if row.head == arm)
    value = row.values[index]
    return value.text, value.note or row.note or value.title


def test_a_spike_of_one_step_is_seen_where_steps_are_logged(evidence_of):
    evidence = evidence_of(replicates=2, logs=EVERY, spikes={"soft": (405, 701)})
    assert all(one.single_steps for one in evidence.stability)
    assert values(evidence, "loss_spikes") == [1000 * 2 / 800] * 2
    assert values(evidence, "loss_spikes", "btx") == [0, 0]
    assert "largest single step" in stability_table(evidence).caption


def test_one_old_log_has_all_arms_counted_by_its_rule(evidence_of):
    few = {"logs": ("soft", "top-1", "top-2"), "spikes": {"soft": (705,), "top-1": (405,)}}
    evidence = evidence_of(replicates=1, **few)
    assert not any(one.single_steps for one in evidence.stability)
    # At 405 the loss still falls so fast that its rows' median deviation hides a tenth of a nat.
    assert values(evidence, "loss_spikes", "soft") == [1000 / 800]
    assert values(evidence, "loss_spikes", "top-1") == [0]
    whole = evidence_of(replicates=1, **(few | {"logs": EVERY}))
    assert values(whole, "loss_spikes", "top-1") == [1000 / 800]
    assert "mean loss" in stability_table(evidence).caption


def test_norms_are_quantiles_of_steps_and_of_the_rows_largest(evidence_of):
    evidence = evidence_of(replicates=1, logs=EVERY)
    norms = [1.0 + number % 10 for number in range(1, 81)]
    assert values(evidence, "grad_norm_median") == [np.percentile(norms, 50)] == [5.5]
    assert values(evidence, "grad_norm_high") == [2 * np.percentile(norms, 95)] == [20.0]
    assert [shown(evidence, "soft", f"norm {q}%")[0] for q in (50, 90, 99)] == ["5.5", "9.1", "10"]
    assert shown(evidence, "soft", "norm 90%")[1] == "of 80 steps"
    assert shown(evidence, "soft", "norm high")[0] == "20"


def test_churn_is_the_mean_over_the_phase_and_of_the_routers_there_are(evidence_of):
    evidence = evidence_of(replicates=2, logs=EVERY)
    moved = fmean(1 / validation for validation in range(2, 9))
    assert values(evidence, "router_churn") == pytest.approx([moved] * 2)
    assert values(evidence, "attention_churn") == pytest.approx([moved / 2] * 2)
    assert shown(evidence, "soft", "FFN churn")[0] == f"{moved:.3f}"
    assert cells(evidence, "attention_churn", "btx") == []
    assert shown(evidence, "btx", "att. churn") == ("--", "the arm has no such router")


def test_the_spread_is_over_replicates(evidence_of):
    evidence = evidence_of(replicates=3)
    tested = [
        fmean(c.nll for c in evidence.cells if (c.name, c.role, c.replicate) == ("soft", "arm", r))
        for r in range(3)
    ]
    assert shown(evidence, "soft", "sd test")[0] == f"{stdev(tested):.4f}" != "0.0000"
    assert shown(evidence, "soft", "sd valid")[0] == "0.0000"  # their fake courses are the same
    one = evidence_of(replicates=1)
    for column in ("sd test", "sd valid"):
        assert shown(one, "soft", column) == ("--", "a spread takes two replicates, there is 1")


def test_older_logs_say_what_they_lack(evidence_of):
    evidence = evidence_of(replicates=2)
    assert values(evidence, "loss_spikes") == [0, 0]
    assert values(evidence, "grad_norm_median") == [1.0, 1.0]
    assert [(c.value, c.missing) for c in cells(evidence, "grad_norm_high")] == [
        (None, NOT_LOGGED)
    ] * 2
    assert {c.missing for c in cells(evidence, "router_churn")} == {NO_CHURN}
    assert shown(evidence, "soft", "norm high") == ("--", NOT_LOGGED)
    assert shown(evidence, "soft", "att. churn") == ("--", NO_CHURN)


def test_results_from_before_still_render(tmp_path):
    made = render(tmp_path / "store", make_store(tmp_path / "store", Fake(replicates=2)), tmp_path)
    again = render_results(_without_stability(made.paths["results.json"]), tmp_path / "again")
    page = again.paths["report.html"].read_text()
    assert "not logged in these results, which are older" in page
    assert '<section id="stability-section">' in page


def _without_stability(path):
    results = json.loads(path.read_text())
    assert results.pop("stability") and results.pop("measures")
    path.write_text(json.dumps(results))
    return path


def test_what_did_not_finish_says_why(evidence_of):
    evidence = evidence_of(replicates=1, failed=(("top-1", 0),), undone=(("soft", 0),), logs=EVERY)
    assert "the loss is NaN at step 412" in shown(evidence, "top-1", "spikes")[1]
    assert "not run yet" in shown(evidence, "soft", "norm 50%")[1]


def test_nothing_trained_has_no_table(evidence_of):
    undone = tuple((arm, 0) for arm in ARMS)
    assert stability_table(evidence_of(replicates=1, undone=undone)) is None


def test_it_stands_in_page_latex_and_csv(tmp_path):
    fake = Fake(replicates=2, logs=EVERY, spikes={"soft": (405,)})
    made = render(tmp_path / "store", make_store(tmp_path / "store", fake), tmp_path)
    assert "<h2>Stability</h2>" in made.paths["report.html"].read_text()
    assert r"\caption{Stability" in made.paths["table.tex"].read_text()
    lines = made.paths["table.csv"].read_text().splitlines()
    assert any(line.startswith("stability,soft,,spikes,1.250,1.25,") for line in lines)
    assert "grad norm max" not in made.paths["report.html"].read_text()  # no fact of routers


def test_each_setting_has_its_own(evidence_of):
    evidence = evidence_of(replicates=1, settings={"a": {}, "b": {}}, logs=("soft@a", "btx@a"))
    assert values(evidence, "router_churn", "soft@a")[0] > 0
    assert values(evidence, "router_churn", "soft@b") == [None]


def test_all_of_it_can_be_asked_for():
    names = ("loss_spikes", "grad_norm_median", "grad_norm_high", "router_churn", "attention_churn")
    assert {MEASURES[name].source for name in names} == {"training"}
