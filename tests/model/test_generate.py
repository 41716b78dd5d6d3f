"""Generation: cached steps equal the whole forward, padded batches each row alone; sampling."""

import pytest
import torch

from bam_lab.errors import SpecError
from bam_lab.model.context import Prompt
from bam_lab.model.ensemble import Ensemble, mixed_reference
from bam_lab.model.generate import Decoder, Sampling, choose, generate, left_pad, steps
from bam_lab.spec.laws import broken_laws
from bam_lab.spec.methods import BTMMethod
from bam_lab.spec.model import END_OF_TEXT_ID
from tests.model.cases import (
    CASES,
    DENSE,
    METHODS,
    SEGMENT,
    SHAPES,
    btx,
    model_of,
    shape,
    text,
    top_k,
)

BF16_MEDIAN = 0.05
"""Relative distance of half the steps' logits, as in the conformance tests."""
LENGTHS = (SEGMENT + 3, 1, 2 * SEGMENT, 4)
NEW = 2 * SEGMENT + 2
GENERATING = [c for c in CASES if "causality" not in broken_laws(METHODS[c[0]], "inference")]
REFUSED = sorted({m for m, _ in CASES} - {m for m, _ in GENERATING})
SYSTEMS = {"dense": DENSE, **METHODS}
ALL = [("dense", block, "prompt") for block in SHAPES]
ALL += [(*case, "prompt") for case in GENERATING]
ALL += [(*case, "segment") for case in GENERATING if hasattr(METHODS[case[0]], "segment_len")]


def rows_of_text():
    """Return prompts, and what follows each of them."""
    whole = [text(1, n + NEW, seed=n)[0] for n in LENGTHS]
    return whole, left_pad([row[:n].tolist() for row, n in zip(whole, LENGTHS, strict=True)])


def assert_steps_follow(model, rule, wanted):
    """Feed the text behind each prompt, and compare the logits of every step."""
    whole, (prompts, real) = rows_of_text()
    decoder = Decoder(model, prompts, real, NEW, rule)
    got = [decoder.start()]
    for step in range(NEW - 1):
        got.append(
            decoder.step(torch.stack([r[n + step] for r, n in zip(whole, LENGTHS, strict=True)]))
        )
    for i, (row, n) in enumerate(zip(whole, LENGTHS, strict=True)):
        torch.testing.assert_close(
            torch.stack([logits[i] for logits in got]), wanted(row[None, :-1], n)[0, n - 1 :]
        )


@pytest.mark.parametrize(("method", "block", "rule"), ALL)
@torch.no_grad()
def test_steps_equal_the_whole_forward_of_each_row_alone(method, block, rule):
    """Every system, prompts of one token and of whole segments, past borders of segments."""
    model = model_of(SYSTEMS[method], block)

    def wanted(row, length):
        return model.logits(model(row, prompt=Prompt(length, rule)).hidden)

    assert_steps_follow(model, rule, wanted)


@pytest.mark.parametrize("top_k", [1, 2, 3])
@torch.no_grad()
def test_branch_train_merge_mixes_distributions(top_k):
    model = ensemble(top_k)
    assert_steps_follow(model, "prompt", lambda row, length: mixed_reference(model, row))


def ensemble(top_k):
    method = BTMMethod(method="btm", top_k=top_k, temperature=0.1)
    generator = torch.Generator().manual_seed(0)
    model = Ensemble(shape(), method, 3)
    for tensor in (*model.parameters(), model.idf, model.centroids):
        torch.nn.init.uniform_(tensor.data, -0.3, 0.5, generator=generator)
    model.idf.abs_()
    model.centroids.abs_()
    return model


@pytest.mark.parametrize("method", REFUSED)
def test_a_system_that_looks_ahead_refuses_with_the_reason(method):
    reason = broken_laws(METHODS[method], "inference")["causality"]
    with pytest.raises(SpecError, match=f"causal inference rule to generate.*{reason}"):
        generate(model_of(METHODS[method]), text(1, 5), None, 3)


@torch.no_grad()
def test_greedy_takes_the_likeliest_and_stops_at_end_of_text():
    model = model_of(btx(top_k(1)), seed=3)
    prompts, real = left_pad([[5, 6, 7], [9]])
    whole = generate(model, prompts, real, 12, end=None)
    assert whole.tokens.shape == (2, 12) and whole.lengths.tolist() == [12, 12]
    for prompt, made in zip([[5, 6, 7], [9]], whole.tokens.tolist(), strict=True):
        tokens = torch.tensor([prompt + made])
        best = model.logits(model(tokens).hidden).argmax(-1)[0]
        assert best[len(prompt) - 1 : -1].tolist() == made
    end = int(whole.tokens[0, 4])  # now the first row ends early
    assert end not in whole.tokens[0, :4]
    stopped = generate(model, prompts, real, 12, end=end)
    assert stopped.lengths[0] == 5
    assert (stopped.tokens[0, 5:] == end).all()
    length = int(stopped.lengths[1])
    assert stopped.tokens[1, :length].equal(whole.tokens[1, :length])
    alone = generate(model, prompts[:1], real[:1], 12, end=end)
    assert alone.tokens.tolist() == [whole.tokens[0, :5].tolist()]


@pytest.mark.parametrize("method", ["btx-soft", "bam-per_expert-soft", "btx-top-2"])
def test_few_vectors_without_gradient_take_the_same_products(method):
    """Weights are not copied side by side for a step; the results are those of training."""
    model, tokens = model_of(METHODS[method]), text(1, 9)
    wanted = model(tokens).hidden
    assert wanted.requires_grad
    with torch.no_grad():
        torch.testing.assert_close(model(tokens).hidden, wanted)


@pytest.mark.parametrize(
    "method", ["dense", "btx-top-2", "bam-shared-soft", "bam-per_expert-top-2", "lory-own_mean"]
)
@torch.no_grad()
def test_bf16_steps_follow_float32(method):
    """Cache and merged FFN in bf16; a flipped choice at one step moves that step most."""
    model, rule = model_of(SYSTEMS[method]), "segment" if method.startswith("lory") else "prompt"
    whole, (prompts, real) = rows_of_text()

    def logits():
        decoder = Decoder(model, prompts, real, 9, rule)
        found = [decoder.start()]
        for step in range(8):
            found.append(decoder.step(torch.stack([r[step] for r in whole])))
        return torch.stack(found), decoder

    exact, _ = logits()
    with torch.autocast("cpu", torch.bfloat16):
        reduced, decoder = logits()
    assert reduced.dtype == torch.float32
    assert all(layer.keys.dtype == torch.bfloat16 for layer in decoder.caches[0].layers)
    distance = (reduced - exact).norm(dim=-1) / exact.norm(dim=-1)
    assert distance.median() < BF16_MEDIAN


def test_padding_may_hold_anything():
    model = model_of(METHODS["lory-own_mean"])
    prompts, real = left_pad([[5] * 13, [9, 8]])
    changed = prompts.masked_fill(~real, 17)
    assert END_OF_TEXT_ID != 17
    wanted = generate(model, prompts, real, 15).tokens
    assert generate(model, changed, real, 15).tokens.equal(wanted)
    wider = torch.nn.functional.pad(prompts, (4, 0)), torch.nn.functional.pad(real, (4, 0))
    assert generate(model, *wider, 15).tokens.equal(wanted)


def test_steps_go_on_behind_an_end():
    model = model_of(DENSE)
    drawn = torch.stack(list(steps(model, text(2, 3), None, 9)), 1)
    assert drawn.equal(generate(model, text(2, 3), None, 9, end=None).tokens)


def test_sampling_draws_from_the_distribution():
    """At temperature 2, among the 3 likeliest, 40000 draws."""
    logits = torch.tensor([[0.0, 3.0, 1.0, 2.0, -1.0]])
    sampling = Sampling(torch.Generator().manual_seed(0), temperature=2.0, top_k=3)
    drawn = choose(logits.expand(40000, -1), sampling)
    share = torch.bincount(drawn, minlength=5) / 40000
    wanted = torch.tensor([0.0, 1.5, 0.5, 1.0, -9.0]).softmax(0)
    wanted = torch.tensor([0, wanted[1], wanted[2], wanted[3], 0])
    torch.testing.assert_close(share, wanted / wanted.sum(), atol=0.01, rtol=0)


@pytest.mark.parametrize(
    ("top_p", "wanted"), [(0.01, {1}), (0.6, {1}), (0.7, {1, 3}), (1.0, {0, 1, 2, 3})]
)
def test_top_p_keeps_the_likeliest_that_reach_it(top_p, wanted):
    logits = torch.tensor([0.05, 0.65, 0.1, 0.2]).log().expand(500, -1)
    sampling = Sampling(torch.Generator().manual_seed(0), top_p=top_p)
    assert set(choose(logits, sampling).tolist()) == wanted


def test_sampling_repeats_with_its_generator():
    model, prompt = model_of(DENSE), text(2, 3)

    def drawn(seed):
        sampling = Sampling(torch.Generator().manual_seed(seed))
        return generate(model, prompt, None, 20, sampling=sampling).tokens.tolist()

    assert drawn(1) == drawn(1) != drawn(2)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"temperature": 0.0}, "temperature must be at least 1e-06, got 0.0"),
        ({"temperature": 1e-300}, "temperature must be at least 1e-06, got 1e-300"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, got 1.5"),
    ],
)
def test_wrong_sampling_is_refused(settings, match):
    with pytest.raises(SpecError, match=match):
        Sampling(torch.Generator(), **settings)


@pytest.mark.parametrize(
    ("real", "new", "match"),
    [
        ([[0, 0], [1, 1]], 3, "prompts must hold a row, and a token in every row"),
        ([[1, 0], [1, 1]], 3, "prompts must be padded on the left"),
        ([[0, 1], [1, 1]], 149, "at most max_seq_len 150 tokens, got 2 [+] 149"),
        ([[0, 1], [1, 1]], 0, "max_new_tokens must be at least 1, got 0"),
    ],
)
def test_wrong_prompts_are_refused(real, new, match):
    with pytest.raises(SpecError, match=match):
        generate(model_of(DENSE), text(2, 2), torch.tensor(real, dtype=torch.bool), new)


def test_a_rule_without_effect_is_refused():
    with pytest.raises(SpecError, match="rule must be prompt with method: btx"):
        generate(model_of(METHODS["btx-top-1"]), text(1, 3), None, 3, rule="segment")


def test_an_end_that_no_model_says_is_refused():
    with pytest.raises(SpecError, match="end must be a token below vocab_size 61, got 61"):
        generate(model_of(DENSE), text(1, 3), None, 3, end=61)


def test_prompts_that_are_no_rows_of_tokens_are_refused():
    model, prompts = model_of(DENSE), text(2, 3)
    with pytest.raises(SpecError, match="below vocab_size 61, got 61"):
        generate(model, prompts.index_fill(1, torch.tensor([2]), 61), None, 3)
    for rows in ([], [[]]):
        with pytest.raises(SpecError, match="must hold a row, and a token in every row"):
            generate(model, *left_pad(rows), 3)


def test_prompt_and_completion_may_fill_max_seq_len():
    assert generate(model_of(DENSE), text(1, 2), None, 148, end=None).lengths.tolist() == [148]
