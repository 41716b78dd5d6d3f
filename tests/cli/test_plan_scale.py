"""Printed parameter counts and FLOP sums against the shipped shapes, and `plan --scale` alone."""

import json

import pytest

from bam_lab.cli.plan_scale import load_scale, printed_rows
from bam_lab.cost.papers import verdict
from tests.cli.command import bam_lab

DIFFERS = {
    ("Table 9", "kv-sharing", "active"): 624_983_040,
    ("Table 9", "btx-6-top-3", "total"): 775_990_272,
    ("Table 9", "btx-6-top-3", "active"): 662_744_064,
}
CUT_OFF = {
    ("Table 4", "btx-7", "total"),
    ("Table 4", "btx-8", "total"),
    ("Table 5", "bam", "active"),
    ("Table 5", "btx-6-top-3", "active"),
}


def rows(name):
    return printed_rows(name, load_scale(name)[1])


def test_bam_prints_what_is_counted_but_for_its_slips():
    found = {(row.place, row.row, row.column): row for row in rows("bam-590m")}
    assert len(found) == 10 + 12 + 4 + 15
    for key, row in found.items():
        wanted = "differs" if key in DIFFERS else "cut off" if key in CUT_OFF else "equal"
        assert row.verdict == wanted, key
        assert row.note or wanted == "equal", key
    assert {key: found[key].counted for key in DIFFERS} == DIFFERS


def test_bam_table_7_comes_out_to_the_last_digit():
    totals = [row.counted for row in rows("bam-590m") if row.column == "total FLOPs"]
    assert totals == [48_257_024, 21_510_144, 46_692_352]


@pytest.mark.parametrize(("name", "numbers"), [("lory-0.3b", 4), ("lory-1.5b", 4), ("lory-7b", 2)])
def test_lorys_totals(name, numbers):
    found = rows(name)
    assert [row.verdict for row in found] == ["equal"] * numbers


def test_btx_active():
    assert [(row.printed, row.verdict) for row in rows("btx-7b")] == [
        (6.7, "equal"),
        (6.7, "equal"),
        (11.1, "equal"),
        (19.7, "equal"),
    ]


@pytest.mark.parametrize(
    ("printed", "ours", "unit", "wanted"),
    [
        (6.7, 6_738_415_616, 1e9, "equal"),
        (6.7, 6_651_000_000, 1e9, "equal"),
        (6.7, 6_760_000_000, 1e9, "cut off"),
        (6.7, 6_640_000_000, 1e9, "differs"),
        (7.0, 6_738_415_616, 1e9, "equal"),
        (813_000_000.0, 813_745_152, 1.0, "cut off"),
        (813_000_000.0, 813_400_000, 1.0, "equal"),
        (587_209_728.0, 587_209_729, 1.0, "differs"),
    ],
)
def test_digits(printed, ours, unit, wanted):
    assert verdict(printed, ours, unit) == wanted


def test_a_scale_alone_is_shown_with_its_slips():
    shown = bam_lab("plan", "--scale", "bam-590m").out
    for text in ("587,209,728 parameters dense", "48,257,024", "cut off [6]", "[2] Leaves out"):
        assert text in shown
    made = json.loads(bam_lab("plan", "--scale", "lory-7b", "--json").out)
    assert made["params"] == 6_738_415_616
    assert [row["verdict"] for row in made["printed"]] == ["equal", "equal"]
    assert "No paper prints a count" in bam_lab("plan", "--scale", "su-decoder").out


def test_an_ablation_at_a_papers_scale_shows_what_that_paper_prints():
    arguments = ("plan", "bam-inference-cost", "--scale", "bam-590m")
    shown = bam_lab(*arguments).out
    assert all(text in shown for text in ("48,257,024", "21,510,144", "46,692,352", "[2] Leaves"))
    printed = json.loads(bam_lab(*arguments, "--json").out)["printed"]
    assert {row["place"] for row in printed} == {"Table 9", "Table 4", "Table 5", "Table 7"}
    for more in (["--set", "model.ffn_dim=1024"], ["--set", "model.max_seq_len=256"]):
        assert json.loads(bam_lab(*arguments, *more, "--json").out)["printed"] == []
    assert "Printed in" not in bam_lab("plan", "bam-inference-cost").out
    assert "Printed in" not in bam_lab("plan", "lory-main", "--scale", "bam-590m").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "plan must have the ID of an ablation, or a --scale, got neither"),
        (("--scale", "nanno"), "got 'nanno'. Did you mean `nano`"),
        (("--scale", "nano", "--set", "a=b"), "--set must stand with the ID of an ablation"),
        (("--scale", "nano", "--replicates", "2"), "--replicates must stand with the ID"),
    ],
)
def test_what_makes_no_plan_is_said(arguments, said):
    done = bam_lab("plan", *arguments)
    assert done.code != 0
    assert said in done.err
