"""Attention that stays inside documents: the law, and every path against an oracle."""

import pytest
import torch
from transformers import LlamaForCausalLM
from transformers.models.llama.configuration_llama import LlamaConfig

from bam_lab.hf.names import LLAMA
from bam_lab.model import causal_attention, gathered_attention
from bam_lab.model.attention import AttentionExperts
from bam_lab.model.attention_reference import attention_experts_reference, attention_reference
from bam_lab.model.context import Draw, Prompt, document_starts
from bam_lab.model.ensemble import mixed_reference, posterior_reference
from bam_lab.model.generate import Decoder, left_pad
from bam_lab.model.losses import next_token_loss
from bam_lab.model.trace import traced_flops
from bam_lab.spec.laws import broken_laws, mixes_documents
from bam_lab.spec.model import END_OF_TEXT_ID
from tests.model.cases import (
    BLOCKS,
    DENSE,
    EXPERTS,
    METHODS,
    ROUTERS,
    SHAPES,
    context_of,
    model_of,
    shape,
    text,
)
from tests.model.test_attention import filled
from tests.model.test_ensemble import btm, ensemble_of
from tests.model.test_parity import config_of, converted, randomised

APART = {"cross_document_attention": False}
ENDS = (23, 64, 65, 90)
"""Inside a segment, at a border of attention's blocks, an empty document, and one more."""
SYSTEMS = {"dense": DENSE, **METHODS}
ONCE = [("dense", block) for block in SHAPES]
ONCE += [(name, BLOCKS[number % 2]) for number, name in enumerate(METHODS)]
"""Every system once: what a block is made of otherwise is tested on the dense model."""


def packed(rows=3, length=100, ends=ENDS):
    """Return text in which end-of-text stands in the last row at `ends`, and in the first at 50."""
    tokens = text(rows, length).clamp(min=1)
    tokens[-1, list(ends)] = END_OF_TEXT_ID
    tokens[0, 50] = END_OF_TEXT_ID
    return tokens


def documents_of(length=100, ends=ENDS):
    return [slice(*pair) for pair in zip((0, *ends), (*ends, length), strict=True)]


def logits(model, tokens, rule="inference"):
    draw = Draw(100, torch.Generator().manual_seed(0)) if rule == "training" else None
    return model.logits(model(tokens, draw).hidden)


def test_a_document_starts_at_the_end_of_text_before_it():
    tokens = torch.tensor([[0, 5, 5, 0, 0, 7], [4, 5, 0, 6, 7, 8]])
    assert document_starts(tokens).tolist() == [[0, 0, 0, 3, 4, 4], [0, 0, 2, 2, 2, 2]]


@pytest.mark.parametrize("rule", ["training", "inference"])
@pytest.mark.parametrize(("method", "block"), ONCE)
@torch.no_grad()
def test_document_invariance(method, block, rule):
    """Changing other documents moves no logit of mine, but where routers are known to mix them."""
    model, tokens = model_of(SYSTEMS[method], block, **APART), packed()
    before, moved = logits(model, tokens, rule)[-1], []
    for mine in documents_of():
        other = tokens % 60 + 1  # another token, and no end-of-text
        other[tokens == END_OF_TEXT_ID] = END_OF_TEXT_ID
        other[:, mine] = tokens[:, mine]
        other[:-1] = tokens[:-1]
        after = logits(model, other, rule)[-1]
        if mixes_documents(SYSTEMS[method], rule):
            moved.append(not torch.allclose(after[mine], before[mine], atol=1e-3))
        else:
            torch.testing.assert_close(after[mine], before[mine])
        assert not torch.allclose(after, before)
    assert any(moved) or not moved


PARTED = [
    (method, block)
    for method, block in ONCE
    if not mixes_documents(SYSTEMS[method], "inference") and block != "learned"
]
"""Systems in which documents share no decision and no count of places."""


@pytest.mark.parametrize(("method", "block"), PARTED)
@torch.no_grad()
def test_a_packed_document_has_the_logits_that_it_has_alone(method, block):
    """With its end-of-text before it."""
    model, tokens = model_of(SYSTEMS[method], block, **APART), packed()
    whole = logits(model, tokens)[-1]
    for mine in documents_of():
        alone = logits(model, tokens[-1:, mine])[0]
        torch.testing.assert_close(whole[mine], alone, rtol=1e-4, atol=TURNED_ATOL)


TURNED_ATOL = 1e-4
"""Rotary angles of other places: digits of sines and cosines."""


@pytest.mark.parametrize(("method", "block"), ONCE[::4])
@torch.no_grad()
def test_without_end_of_text_nothing_changes(method, block):
    tokens = text().clamp(min=1)
    joined, apart = (model_of(SYSTEMS[method], block, **changes) for changes in ({}, APART))
    assert torch.equal(logits(apart, tokens), logits(joined, tokens))
    assert not torch.equal(logits(apart, packed()), logits(joined, packed()))


def test_joined_is_the_default():
    assert shape().cross_document_attention
    assert "cross_document_attention" not in shape().model_dump(exclude_defaults=True)


def case(kv_heads, length=130):
    spec = shape(num_kv_heads=kv_heads)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, length, 16, generator=generator).requires_grad_()
    weights = torch.randn(x.shape, generator=generator)
    starts = document_starts(packed(3, length, (23, 64, 65, 90, 128)))
    return spec, x, weights, starts


def assert_alike(y, wanted, weights, inputs):
    torch.testing.assert_close(y, wanted)
    got, want = (
        torch.autograd.grad((out * weights).sum(), inputs, retain_graph=True)  # of the routing
        for out in (y, wanted)
    )
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)  # as in test_attention.py


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("blocked", [1024, 0])
def test_dense_attention_equals_the_explicit_softmax(kv_heads, blocked, monkeypatch):
    """By blocks and by torch's kernel."""
    monkeypatch.setattr(causal_attention, "BLOCKED_UP_TO", blocked)
    spec, x, weights, starts = case(kv_heads)
    module = model_of(DENSE, num_kv_heads=kv_heads).layers[0].attention
    context = context_of(130)._replace(starts=starts)
    y, _ = module(x, x, context)
    held = (module.query, module.key, module.value, module.output)
    wanted = attention_reference(x, *held, context.rope, spec, starts)
    assert_alike(y, wanted, weights, (x, *held))


@pytest.mark.parametrize("router", ROUTERS)
@pytest.mark.parametrize("kv", ["shared", "per_expert"])
@pytest.mark.parametrize("kept", [1024, 0])
def test_attention_experts_equal_the_loop(router, kv, kept, monkeypatch):
    """Gathered queries of several chunks too, with probabilities kept and computed again."""
    monkeypatch.setattr(gathered_attention, "CHUNK", 4)
    monkeypatch.setattr(gathered_attention, "KEPT_UP_TO", kept)
    spec, x, weights, starts = case(2)
    module = filled(AttentionExperts(spec, ROUTERS[router], kv, EXPERTS))
    context = context_of(130)._replace(starts=starts)
    y, routing = module(x, x, context)
    wanted = attention_experts_reference(module, x, routing.gates, context.rope, starts)
    assert_alike(y, wanted, weights, (x, *module.parameters()))


def decoded(model, whole, lengths, new, rule):
    """Feed the text behind each prompt; return the logits of every step of each row."""
    prompts, real = left_pad([row[:n].tolist() for row, n in zip(whole, lengths, strict=True)])
    decoder = Decoder(model, prompts, real, new, rule)
    got = [decoder.start()]
    for step in range(new - 1):
        pairs = zip(whole, lengths, strict=True)
        got.append(decoder.step(torch.stack([row[n + step] for row, n in pairs])))
    return torch.stack(got, 1)


LENGTHS, NEW = (13, 1, 20, 4), 22


def generated():
    """Return rows with end-of-text in prompts, at a prompt's end, and among what follows."""
    rows = [text(1, n + NEW, seed=n)[0].clamp(min=1) for n in LENGTHS]
    for row, ends in zip(rows, [(5, 20), (0, 10), (19, 20), (9, 12)], strict=True):
        row[list(ends)] = END_OF_TEXT_ID
    return rows


CACHED = [(m, b) for m, b in ONCE if "causality" not in broken_laws(SYSTEMS[m], "inference")]


@pytest.mark.parametrize(("method", "block"), CACHED)
@torch.no_grad()
def test_cached_steps_equal_the_whole_forward(method, block):
    """Under left padding, which is end-of-text too and is never seen."""
    model, whole = model_of(SYSTEMS[method], block, **APART), generated()
    for rule in ("prompt", "segment") if hasattr(SYSTEMS[method], "segment_len") else ("prompt",):
        got = decoded(model, whole, LENGTHS, NEW, rule)
        for row, n, steps in zip(whole, LENGTHS, got, strict=True):
            hidden = model(row[None, :-1], prompt=Prompt(n, rule)).hidden
            torch.testing.assert_close(steps, model.logits(hidden)[0, n - 1 :])


@pytest.mark.parametrize("top_k", [1, 2, 3])
@torch.no_grad()
def test_branch_train_merge_reads_a_document_alone(top_k):
    """Its posterior too; cached, whole, and by whole vectors."""
    model, tokens = ensemble_of(btm(top_k), **APART), packed()
    torch.testing.assert_close(model.posterior(tokens), posterior_reference(model, tokens))
    whole = model.log_probs(tokens)[-1]
    torch.testing.assert_close(model.log_probs(tokens), mixed_reference(model, tokens))
    for mine in documents_of():
        alone = model.log_probs(tokens[-1:, mine])[0]
        torch.testing.assert_close(whole[mine], alone, rtol=1e-4, atol=TURNED_ATOL)
    rows = generated()
    for row, n, steps in zip(
        rows, LENGTHS, decoded(model, rows, LENGTHS, NEW, "prompt"), strict=True
    ):
        torch.testing.assert_close(steps, mixed_reference(model, row[None, :-1])[0, n - 1 :])


def test_llama_under_a_mask_of_blocks():
    """transformers' model, given each document's block of the causal mask: loss and gradients."""
    spec = shape("serial", **APART)
    reference = randomised(LlamaForCausalLM(LlamaConfig(**config_of(spec))))
    model, tokens = converted(reference, LLAMA, spec), packed(3, 140, (*ENDS, 120))
    number = (tokens == END_OF_TEXT_ID).cumsum(1)
    seen = (number[:, :, None] == number[:, None, :]).tril()
    mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float).min)
    theirs = reference(tokens, attention_mask=mask[:, None], labels=tokens)
    torch.testing.assert_close(logits(model, tokens), theirs.logits)
    loss = next_token_loss(model(tokens[:, :-1]).hidden, model.lm_head_weight, tokens[:, 1:])
    torch.testing.assert_close(loss, theirs.loss)
    loss.backward()
    theirs.loss.backward()
    torch.testing.assert_close(model.embedding.grad, reference.model.embed_tokens.weight.grad)
    theirs_key = reference.model.layers[0].self_attn.v_proj.weight.grad
    torch.testing.assert_close(model.layers[0].attention.value.grad, theirs_key)


@pytest.mark.parametrize("method", ["dense", "bam-shared-soft", "bam-per_expert-top-2"])
@pytest.mark.parametrize("blocked", [1024, 0])
def test_masked_products_are_executed_all_the_same(method, blocked, monkeypatch):
    """The formulas of `cost/flops.py` hold as they are."""
    monkeypatch.setattr(causal_attention, "BLOCKED_UP_TO", blocked)
    tokens = packed(2, 128)
    joined, apart = (model_of(SYSTEMS[method], **changes) for changes in ({}, APART))
    if method == "bam-per_expert-top-2":  # else other choices: queries would stand elsewhere
        for model in (joined, apart):
            model.layers = model.layers[:1]
    for training in (False, True):
        counts = [traced_flops(model, tokens, tokens, training) for model in (joined, apart)]
        assert counts[0] == counts[1]


@pytest.mark.parametrize(("method", "block"), [("dense", "parallel"), ("btx-top-2", "serial")])
def test_bf16_follows_float32(method, block):
    model, tokens = model_of(SYSTEMS[method], block, **APART), packed()
    exact = model(tokens).hidden
    with torch.autocast("cpu", torch.bfloat16):
        reduced = model(tokens).hidden
    assert ((reduced - exact).norm(dim=-1) / exact.norm(dim=-1)).median() < 0.05
