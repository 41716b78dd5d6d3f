"""Long completions: distances add up, switched prompts, a model's own text."""

import math

import pytest
import torch

from bam_lab.errors import SpecError
from bam_lab.evaluate.probes.completion import completion_rows
from bam_lab.evaluate.probes.long import distance_rows, own_completions
from bam_lab.evaluate.probes.losses import completion_nats
from bam_lab.evaluate.probes.rows import COLUMNS
from bam_lab.evaluate.probes.texts import switched
from bam_lab.model.generate import generate
from tests.evaluate.probes.probe_text import only, random_text
from tests.evaluate.probes.test_completion import SOME, system
from tests.model.cases import SEGMENT

TEXT = [random_text("law", length=75), random_text("code", rows=3, length=75, seed=1)]


def rows_of(model, text=TEXT, prompt_len=20, bin_len=SEGMENT):
    return distance_rows(model, text, prompt_len, bin_len, precision="float32")


@pytest.mark.parametrize("bin_len", [1, SEGMENT, 55, 99])
@pytest.mark.parametrize("name", SOME)
def test_distances_add_up_to_the_whole_loss(name, bin_len):
    rows = rows_of(system(name), bin_len=bin_len)
    assert all(tuple(row) == COLUMNS for row in rows)
    for domain in ("law", "code"):
        for metric, rule in (("nll", "prompt"), ("nll", "segment"), ("mismatch", None)):
            own = [
                row
                for row in rows
                if (row["domain"], row["metric"], row["rule"]) == (domain, metric, rule)
            ]
            whole = only(own, distance=None)
            parts = [row for row in own if row["distance"] is not None]
            assert [row["distance"] for row in parts] == list(range(0, 55, bin_len))
            assert sum(row["bin_len"] for row in parts) == whole["completion_len"] == 55
            total = math.fsum(row["value"] * row["bin_len"] for row in parts)
            assert total == pytest.approx(whole["value"] * 55, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", SOME)
def test_the_whole_is_the_completion_of_that_length(name):
    model = system(name)
    rows, others = rows_of(model), completion_rows(model, TEXT, (20,), 55, precision="float32")
    for domain in ("law", "code"):
        for rule in ("prompt", "segment"):
            keys = {"domain": domain, "rule": rule, "metric": "perplexity"}
            wanted = only(others, **keys)["value"]
            assert only(rows, distance=None, **keys)["value"] == pytest.approx(wanted)


def test_a_bin_is_its_own_tokens():
    model = system("lory-uniform")
    rows = rows_of(model)
    nats = completion_nats(model, TEXT[1].tokens, 20, precision="float32", rule="segment")
    found = only(rows, domain="code", rule="segment", metric="nll", distance=30)
    assert found["value"] == pytest.approx(nats[:, 30:40].mean())
    assert (found["n"], found["bin_len"], found["prompt_domain"]) == (3, 10, "code")
    last = only(rows, domain="code", rule="segment", metric="nll", distance=50)
    assert last["value"] == pytest.approx(nats[:, 50:].mean()) and last["bin_len"] == 5


def test_the_rules_part_with_the_distance():
    """The token behind the prompt is predicted by the prompt's last one, by the same FFN."""
    model = system("lory-uniform")
    rows = rows_of(model, prompt_len=SEGMENT, bin_len=1)
    mismatch = {
        row["distance"]: row["value"]
        for row in rows
        if row["metric"] == "mismatch" and row["domain"] == "law"
    }
    # One segment decided for the first one behind it, under both rules.
    assert all(abs(mismatch[place]) < 1e-6 for place in range(SEGMENT + 1))
    assert max(abs(mismatch[place]) for place in range(SEGMENT + 1, 2 * SEGMENT)) > 1e-3


def test_switched_rows_say_from_where():
    model, turned = system("lory-uniform"), switched(TEXT, 20)
    rows = rows_of(model, turned)
    found = only(rows, domain="code", rule="prompt", metric="nll", distance=None)
    assert found["prompt_domain"] == "law"
    straight = only(rows_of(model), domain="code", rule="prompt", metric="nll", distance=None)
    assert found["value"] != pytest.approx(straight["value"], rel=1e-4)


@pytest.mark.parametrize(
    ("name", "rule"), [("dense", "prompt"), ("lory-bos", "prompt"), ("lory-bos", "segment")]
)
def test_own_completions(name, rule):
    model = system(name)
    found = own_completions(model, TEXT, 20, precision="float32", rule=rule, batch_tokens=160)
    for own, text in zip(found, TEXT, strict=True):
        assert own.tokens.shape == text.tokens.shape and own.domain == text.domain
        assert (own.tokens[:, :20] == text.tokens[:, :20]).all()
        for row in own.tokens[:2]:
            prompt = torch.from_numpy(row[None, :20])
            wanted = generate(model, prompt, None, 55, rule=rule, end=None).tokens[0]
            assert row[20:].tolist() == wanted.tolist()


def test_what_cannot_be():
    with pytest.raises(SpecError, match="bin_len must be at least 1, got 0"):
        rows_of(system("dense"), bin_len=0)
    with pytest.raises(SpecError, match=r"causal inference rule .* got smear"):
        rows_of(system("smear"))
    with pytest.raises(SpecError, match=r"causal inference rule .* got soft_moe"):
        own_completions(system("soft_moe"), TEXT, 20, precision="float32")
    with pytest.raises(SpecError, match="leave a completion of rows of 75 tokens, got 75"):
        rows_of(system("dense"), prompt_len=75)
