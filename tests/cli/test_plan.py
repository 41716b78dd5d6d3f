"""`plan` and `list`: the numbers that an ablation will cost, for people and as JSON."""

import json

import pytest

from bam_lab.cli.output import amount, duration, size
from tests.cli.command import bam_lab


@pytest.fixture(autouse=True)
def _empty_store(tmp_path, monkeypatch):
    monkeypatch.setenv("BAM_LAB_STORE", str(tmp_path / "store"))


def plan(*arguments):
    done = bam_lab("plan", *arguments, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_the_papers_counts_at_the_papers_size():
    models = plan("bam-perplexity", "--scale", "bam-590m")["models"]
    total = {arm: model["params"]["total"] for arm, model in models.items()}
    assert total == {
        "dense": 587_209_728,
        "btx": 700_480_512,
        "kv-experts": 776_002_560,
        "kv-sharing": 738_253_824,
    }
    printed = {arm: model["params"]["active_printed"] for arm, model in models.items()}
    assert printed["kv-experts"] == 662_731_776
    assert printed["kv-sharing"] == 624_983_040
    assert models["kv-experts"]["params"]["active"] == 662_731_776 + 6 * 4096


def test_aliases_and_stages():
    made = plan("bam-rebuttal-table-3", "--replicates", "2")
    assert made["id"] == "bam-attention-routing"
    labels = {row["label"] for row in made["stages"]}
    assert {"corpus", "tokenizer", "expert law r1", "mixture soft r0"} <= labels
    assert not made["corpus_built"]
    assert not any(row["done"] for row in made["stages"])
    mixtures = [row for row in made["stages"] if row["name"] == "mixture"]
    assert len(mixtures) == 2 * 5
    assert all(row["steps"] == made["models"][row["arm"]]["mixture"]["steps"] for row in mixtures)
    assert made["training_flops"] == sum(row["training_flops"] for row in made["stages"])
    assert made["seconds_left"] > max(row["seconds"] for row in made["stages"])


def test_what_is_behind_each_expert_is_planned_and_shown():
    models = plan("tests/fixtures/systems.yaml")["models"]
    assert models["copies"]["experts"] == ["seed_model"] * 4
    assert models["split"]["experts"][:3] == ["seed_model[1/2]", "seed_model[2/2]", "code[1/2]"]
    assert models["sparse-scratch"]["experts"] == ["scratch"] * 4
    shown = bam_lab("plan", "tests/fixtures/systems.yaml").out
    for text in ("made of", "seed_model x 4", "blend[1/4], blend[2/4]", "scratch x 4"):
        assert text in shown


def test_what_arms_read_is_shown():
    shown = bam_lab("plan", "bam-general-share").out
    for text in ("share-5 reads: general share 5%.", "repeats-8 reads: general text 8 times."):
        assert text in shown


def test_overrides_change_the_plan_and_are_shown():
    text = "scale.phases.mixture.tokens=8192000"
    made = plan("bam-attention-routing", "--set", text)
    plain = plan("bam-attention-routing")
    assert made["overrides"] == [text]
    assert made["models"]["btx"]["mixture"]["tokens"] == 8192000
    assert plain["models"]["btx"]["mixture"]["tokens"] != 8192000
    assert f"changed: --set {text}" in bam_lab("plan", "bam-attention-routing", "--set", text).out


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_fits_the_terminal(columns):
    out = bam_lab("plan", "bam-attention-routing", columns=columns).out
    assert max(len(line) for line in out.splitlines()) <= columns
    for word in ("top-2-renor", "baseline", "seed_model", "matched on", "about", "stages"):
        assert word in out
    listed = bam_lab("list", columns=columns).out
    assert max(len(line) for line in listed.splitlines()) <= columns
    for word in ("bam-attention-routing", "bam-table-6", "top-1", "arXiv:2408.08274"):
        assert word in listed


def test_list_as_json():
    entries = {entry["id"]: entry for entry in json.loads(bam_lab("list", "--json").out)}
    entry = entries["bam-attention-routing"]
    assert entry["aliases"] == ["bam-table-6", "bam-rebuttal-table-3"]
    assert entry["stages_done"] == 0 < entry["stages"]
    assert entry["problem"] == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (999, "999"), (1000, "1.00k"), (587_209_728, "587M"), (1_702_000, "1.70M"),
     (99_960, "100k"), (999_960, "1.00M"), (5.51e13, "55.1T"), (2e21, "2.00Z")],
)  # fmt: skip
def test_amounts_keep_three_digits(value, text):
    assert amount(value) == text


def test_durations_and_sizes():
    assert duration(0) == "0 s"
    assert duration(0.3) == "< 1 s"
    assert duration(8.2) == "8 s"
    assert duration(352) == "5 min 52 s"
    assert duration(11_400) == "3 h 10 min"
    assert duration(10 * 86400 + 7200) == "10 d 02 h"
    assert duration(1e10) == "317 years"
    assert size(4096) == "4 kB"
    assert size(850e6) == "850 MB"
    assert size(4.2e9) == "4.2 GB"
    assert size(29.3e12) == "29.3 TB"


def test_brackets_in_a_title_are_text(tmp_path):
    bam_lab("new", "mine", "--like", "bam-perplexity", "--to", str(tmp_path))
    path = tmp_path / "mine.yaml"
    text = path.read_text()
    title = next(line for line in text.splitlines() if line.startswith("title:"))
    path.write_text(text.replace(title, "title: '[/bold] what of [red]it'"))
    done = bam_lab("plan", str(path), "--set", "report.columns=[heldout/*/perplexity]")
    assert done.code == 0, done.err
    assert "mine: [/bold] what of [red]it" in done.out
    assert "changed: --set report.columns=[heldout/*/perplexity] (these" in done.out


@pytest.mark.parametrize(
    "value", ["model.dim=4611686018427387904", "scale.phases.mixture.tokens=2x"]
)
def test_large_sizes_are_planned(value):
    assert plan("bam-perplexity", "--replicates", "1", "--set", value)["id"] == "bam-perplexity"


def test_sizes_beyond_all_numbers_are_refused():
    for value in ("0x" + "f" * 5000, "1" + "0" * 400):
        done = bam_lab("plan", "bam-perplexity", "--set", f"scale.phases.mixture.tokens={value}")
        assert done.code == 2 and "no number beyond 2^64" in done.err
