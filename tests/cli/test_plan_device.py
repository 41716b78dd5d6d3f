"""`plan --device` and the table of lineages: sums, longest ways, and what is refused."""

import json
from dataclasses import dataclass

import pytest

from bam_lab.cli.plan_lineage import longest
from tests.cli.command import bam_lab


@pytest.fixture(autouse=True)
def _empty_store(tmp_path, monkeypatch):
    monkeypatch.setenv("BAM_LAB_STORE", str(tmp_path / "store"))


@dataclass
class Row:
    key: str
    needs: tuple[str, ...] = ()


def test_the_longest_way_by_hand():
    rows = [
        Row("seed"),
        Row("code", ("seed",)),
        Row("law", ("seed",)),
        Row("upcycle", ("code", "law")),
        Row("mixture", ("upcycle",)),
    ]
    ends = longest(rows, {"seed": 5.0, "code": 3.0, "law": 4.0, "mixture": 2.0})
    assert ends["mixture"] == 5 + 4 + 2
    assert ends["upcycle"] == 9


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    store = str(tmp_path_factory.mktemp("store"))
    asked = ("--replicates", "2", "--device", "h100", "--count", "8", "--mfu", "0.5", "--json")
    done = bam_lab("plan", "bam-perplexity", "--scale", "bam-590m", "--store", store, *asked)
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_a_lineage_sums_its_stages(made):
    found = made["lineages"]["kv-experts"]
    stages = {row["label"]: row for row in made["stages"]}
    branches = [stages[f"expert {domain} r0"] for domain in ("code", "law", "math")]
    mixture, seed = stages["mixture kv-experts r0"], stages["seed_model"]
    every = [seed, *branches, mixture]
    for key in ("training_flops", "bytes_communicated"):
        assert found[key] == sum(row[key] for row in every) > 0
    dense = 587_209_728
    assert found["branch_active_tokens"] == sum(dense * row["tokens"] for row in branches)
    active = made["models"]["kv-experts"]["params"]["active"]
    assert found["mixture_active_tokens"] == active * mixture["tokens"]
    assert found["device_seconds"] == pytest.approx(
        sum(row["seconds"] * row["threads"] for row in every)
    )
    longest_branch = max(row["seconds"] for row in branches)
    assert found["critical_seconds"] == pytest.approx(longest_branch + mixture["seconds"])


def test_a_cluster_takes_each_training_stage(made):
    found = made["on_device"]
    training = [row for row in made["stages"] if row["steps"]]
    assert set(found["needs"]) == {row["key"] for row in training}
    flops = sum(row["training_flops"] for row in training)
    assert found["device_hours"] == pytest.approx(flops / (989e12 * 0.5) / 3600)
    assert found["wall_hours"] == pytest.approx(found["device_hours"] / 8)
    hours = {row["label"]: found["needs"][row["key"]]["wall_hours"] for row in training}
    path = hours["seed_model"] + hours["expert code r0"]
    path += max(hours[f"mixture {arm} r0"] for arm in ("btx", "kv-experts", "kv-sharing"))
    assert found["path_hours"] == pytest.approx(path)


def test_people_see_both():
    asked = ("bam-perplexity", "--scale", "btx-7b", "--replicates", "1", "--device", "rtx-4090")
    shown = " ".join(bam_lab("plan", *asked).out.split())
    for text in (
        "core time path",
        "On 1 x rtx-4090 at an MFU of 0.4: 66.0T model FLOPs a second",
        "! more than the 24.0 GB of one rtx-4090",
        "device-hours of training",
    ):
        assert text in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bam-perplexity", "--device", "h10"), "--device must be a known one, got 'h10'. Did"),
        (("bam-perplexity", "--count", "8"), "--count must stand with --device"),
        (("bam-perplexity", "--mfu", "0.4"), "--mfu must stand with --device"),
        (("bam-perplexity", "--device", "h100", "--mfu", "0"), "--mfu must be at least"),
        (("bam-perplexity", "--device", "h100", "--mfu", "40"), "at most 1, got 40"),
        (("bam-perplexity", "--device", "h100", "--mfu", "nan"), "--mfu must be at least"),
        (("bam-perplexity", "--device", "h100", "--mfu", "1e-320"), "at least 0.0001 and at most"),
        (("bam-perplexity", "--device", "h100", "--count", "10000000"), "'--count'"),
        (("--scale", "nano", "--device", "h100"), "--device must stand with the ID"),
        (("--all", "--device", "h100"), "--all must stand without --device"),
    ],
)
def test_what_has_no_effect_or_no_sense_is_said(arguments, said):
    done = bam_lab("plan", *arguments)
    assert done.code != 0
    assert said in " ".join(done.err.split())
