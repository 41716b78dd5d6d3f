"""Completions: against decoding token by token, under both rules, at other segment lengths."""

import math

import numpy as np
import pytest
import torch

from bam_lab.errors import SpecError
from bam_lab.evaluate.likelihood import NotFinite, continuation_nats, routes_segments
from bam_lab.evaluate.probes.completion import completion_rows
from bam_lab.evaluate.probes.losses import completion_nats
from bam_lab.evaluate.probes.rows import COLUMNS
from bam_lab.evaluate.probes.segment_lens import at_segment_len
from bam_lab.model.generate import Decoder
from bam_lab.spec.laws import no_generation
from tests.evaluate.probes.probe_text import Wrapped, only, random_text
from tests.model.cases import DENSE, METHODS, SEGMENT, lory, model_of, segment_moe, top_k
from tests.model.test_ensemble import btm, ensemble_of

CAUSAL = [name for name, method in METHODS.items() if no_generation(method) is None]
SYSTEMS = [*CAUSAL, "dense", "ensemble"]
SEGMENTED = [name for name in CAUSAL if name.startswith(("lory", "segment_moe"))]
SOME = ["dense", "ensemble", "bam-shared-soft", "lory-own_mean", "lory-bos", "lory-prefix-bos"]
SOME += ["segment_moe-bos-top-2-renormalized"]
DECODED = [*SEGMENTED, "dense", "ensemble", "bam-per_expert-top-2", "btx-top-2-renormalized"]


def system(name):
    if name == "ensemble":
        return ensemble_of(btm(2))
    return model_of(DENSE if name == "dense" else METHODS[name])


def nats(model, text, prompt_len, **settings):
    return completion_nats(model, text.tokens, prompt_len, **({"precision": "float32"} | settings))


def rows_of(model, text, prompt_lens, completion_len, **settings):
    return completion_rows(
        model, text, prompt_lens, completion_len, **({"precision": "float32"} | settings)
    )


@torch.no_grad()
def decoded(model, row, prompt_len, rule):
    """Return each token's nats, one step of generation after the other: the oracle."""
    decoder = Decoder(model, torch.tensor([row[:prompt_len]]), None, len(row) - prompt_len, rule)
    logits, found = decoder.start(), []
    for token in row[prompt_len:]:
        found.append(-logits[0].log_softmax(-1)[token].item())
        if len(found) < len(row) - prompt_len:
            logits = decoder.step(torch.tensor([token]))
    return found


@pytest.mark.parametrize("rule", ["prompt", "segment"])
@pytest.mark.parametrize("name", DECODED)
def test_as_generation_goes(name, rule):
    model, text = system(name), random_text(rows=2, length=2 * SEGMENT + 9)
    if rule == "segment" and not routes_segments(model):
        return
    for prompt_len in (1, SEGMENT + 3):
        wanted = [decoded(model, row, prompt_len, rule) for row in text.tokens.tolist()]
        found = nats(model, text, prompt_len, rule=rule)
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("rule", ["prompt", "segment"])
@pytest.mark.parametrize("name", SOME)
def test_tokens_add_up_to_the_likelihood_of_the_continuation(name, rule):
    model, text = system(name), random_text()
    if rule == "segment" and not routes_segments(model):
        return
    pairs = [(row[:23].tolist(), row[23:].tolist()) for row in text.tokens]
    wanted = continuation_nats(model, pairs, precision="float32", rule=rule)
    found = nats(model, text, 23, rule=rule)
    assert found.shape == (5, 37)
    assert found.sum(1).tolist() == pytest.approx([one.nats for one in wanted], rel=1e-5)


@pytest.mark.parametrize("name", SOME)
def test_alone_as_in_a_batch(name):
    model, text = system(name), random_text(rows=7)
    many, alone = (nats(model, text, 23, batch_tokens=n) for n in (10_000, 1))
    np.testing.assert_allclose(many, alone, rtol=2e-5, atol=1e-5)


def test_any_other_model():
    model, text = system("dense"), random_text()
    np.testing.assert_allclose(nats(Wrapped(model), text, 23), nats(model, text, 23), rtol=1e-5)


def test_rows_as_long_as_the_model():
    """The last token is predicted and not read."""
    model = system("dense")
    assert nats(model, random_text(length=151), 10).shape == (5, 141)
    with pytest.raises(SpecError, match=r"max_seq_len \+ 1 together, 151 for this model, got 152"):
        nats(model, random_text(length=152), 10)


@pytest.mark.parametrize("name", SOME)
def test_rows(name):
    """Losses are those of the last tokens of each row, by domain and over domains."""
    model = system(name)
    text = [random_text("law", rows=3, length=70), random_text("code", rows=2, length=66, seed=1)]
    rows = rows_of(model, text, (SEGMENT, 50), 16)
    assert all(tuple(row) == COLUMNS for row in rows)
    own = SEGMENT if routes_segments(model) else None
    assert {(row["segment_len"], row["trained_segment_len"]) for row in rows} == {(own, own)}
    for prompt_len in (SEGMENT, 50):
        means = {}
        for rule in ("prompt", "segment"):
            used = rule if routes_segments(model) else "prompt"
            for each in text:
                cut = each._replace(tokens=each.tokens[:, -prompt_len - 16 :])
                mean = nats(model, cut, prompt_len, rule=used).mean()
                keys = {"domain": each.domain, "rule": rule, "prompt_len": prompt_len}
                found = only(rows, metric="nll", **keys)
                assert found["value"] == pytest.approx(mean) and found["n"] == len(each.tokens)
                assert (found["context"], found["completion_len"]) == (prompt_len + 16, 16)
                perplexity = only(rows, metric="perplexity", **keys)["value"]
                assert perplexity == pytest.approx(math.exp(mean))
                means[rule, each.domain] = mean
            every = only(rows, metric="nll", domain="*", rule=rule, prompt_len=prompt_len)
            mean = (means[rule, "law"] + means[rule, "code"]) / 2
            assert every["value"] == pytest.approx(mean) and every["n"] == 5
        for domain in ("law", "code"):
            found = only(rows, metric="mismatch", domain=domain, prompt_len=prompt_len)
            wanted = means["prompt", domain] - means["segment", domain]
            assert found["value"] == pytest.approx(wanted, abs=1e-9) and found["rule"] is None


@pytest.mark.parametrize("name", [n for n in SYSTEMS if n not in SEGMENTED])
def test_both_rules_are_one_where_no_segments_are_routed(name):
    model, reads = system(name), []
    model.register_forward_pre_hook(lambda module, inputs: reads.append(1))
    rows = rows_of(model, [random_text(rows=2)], (9,), 16, segment_lens=(5, 15))
    by_rule = [
        [row["value"] for row in rows if row["rule"] == rule] for rule in ("prompt", "segment")
    ]
    assert by_rule[0] == by_rule[1] and len(by_rule[0]) == 4
    assert [row["value"] for row in rows if row["metric"] == "mismatch"] == [0.0, 0.0]
    assert len(reads) <= 1


@pytest.mark.parametrize("name", [n for n in SEGMENTED if "prefix" not in n])
def test_no_mismatch_where_the_rules_agree(name):
    """The mean over a prompt of one segment is that of the segment before the completion."""
    model, text = system(name), [random_text()]
    rows = rows_of(model, text, (SEGMENT,), SEGMENT)
    assert only(rows, metric="mismatch", domain="*")["value"] == pytest.approx(0, abs=1e-6)
    for prompt_len, completion_len in ((SEGMENT, 2 * SEGMENT), (2 * SEGMENT, SEGMENT)):
        rows = rows_of(model, text, (prompt_len,), completion_len)
        found = only(rows, metric="mismatch", domain="*")["value"]
        assert abs(found) > 1e-4  # least measured 0.0006


@pytest.mark.parametrize("first", ["own_mean", "bos", "uniform", "segment_moe"])
def test_another_segment_length(first):
    """As a model that was made so, of the same weights, which are not copied."""
    make = lory if first != "segment_moe" else lambda f, **s: segment_moe("bos", top_k(2), **s)
    method = make(first)
    model, text = model_of(method), [random_text()]
    wanted = model_of(method.model_copy(update={"segment_len": 15}))
    other = at_segment_len(model, 15)
    assert other.method.segment_len == 15 and model.method.segment_len == SEGMENT
    for rule in ("prompt", "segment"):
        found = nats(other, text[0], 23, rule=rule)
        assert (found == nats(wanted, text[0], 23, rule=rule)).all()
        assert not np.allclose(found, nats(model, text[0], 23, rule=rule), rtol=1e-3)
    for name, parameter in model.named_parameters():
        assert other.get_parameter(name).data_ptr() == parameter.data_ptr()
    assert at_segment_len(model, SEGMENT) is model


def test_a_grid_has_its_own_length_first_and_once():
    model, text = system("lory-uniform"), [random_text()]
    rows = rows_of(model, text, (9, 20), 16, segment_lens=(5, SEGMENT, 30))
    lengths = list(dict.fromkeys(row["segment_len"] for row in rows))
    assert lengths == [SEGMENT, 5, 30] and len(rows) == 3 * 2 * 2 * 5
    assert {row["trained_segment_len"] for row in rows} == {SEGMENT}
    alone = rows_of(at_segment_len(model, 30), text, (9, 20), 16)
    own = [row for row in rows if row["segment_len"] == 30]
    assert [row["value"] for row in own] == [row["value"] for row in alone]


def test_learned_positions_and_evaluation_mode_are_kept():
    model = model_of(METHODS["lory-bos"], "learned").eval()
    other, text = at_segment_len(model, 15), random_text()
    assert not other.training and np.isfinite(nats(other, text, 23)).all()


def test_a_segment_length_that_does_not_fit():
    with pytest.raises(SpecError, match=r"segment_len must divide max_seq_len 150 .* got 7"):
        at_segment_len(system("lory-uniform"), 7)
    with pytest.raises(SpecError, match=r"segment_len must be left out .* got 7"):
        at_segment_len(system("dense"), 7)


@pytest.mark.parametrize("name", ["smear", "soft_moe"])
def test_what_sees_the_completion_is_refused(name):
    with pytest.raises(SpecError, match="causal inference rule to score continuations, got s"):
        rows_of(system(name), [random_text()], (9,), 16)


@pytest.mark.parametrize(
    ("prompt_lens", "completion_len", "message"),
    [
        ((9, 50), 16, r"be at most the 60 tokens of a row of text, got \[9, 50\]"),
        ((), 16, r"prompt_lens must hold a length"),
        ((0,), 16, "prompt_len must be at least 1 .* 16 tokens, got 0"),
        ((9,), 0, "prompt_len must .* leave a completion of rows of 9 tokens, got 9"),
    ],
)
def test_lengths_that_cannot_be(prompt_lens, completion_len, message):
    with pytest.raises(SpecError, match=message):
        rows_of(system("dense"), [random_text()], prompt_lens, completion_len)


def test_a_rule_without_effect():
    with pytest.raises(SpecError, match="rule must be prompt with a method that routes no"):
        nats(system("dense"), random_text(), 9, rule="segment")


def test_nan_is_an_error():
    model, text = system("dense"), random_text()
    model.embedding.data[int(text.tokens[0, 3])] = math.nan
    bad = (text.tokens[:, :-1] == text.tokens[0, 3]).any(1).sum()
    with pytest.raises(NotFinite, match=f"NaN or infinity in {bad} of 5 rows"):
        nats(model, text, 23)


def test_bf16_is_near():
    model, text = system("lory-uniform"), random_text()
    exact, reduced = (nats(model, text, 23, precision=p) for p in ("float32", "bf16-mixed"))
    assert reduced.mean() == pytest.approx(exact.mean(), rel=0.01)
    assert not (exact == reduced).all()
