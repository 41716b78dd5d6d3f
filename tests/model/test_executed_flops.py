"""Executed FLOPs by formula against what a trace of the model counts."""

from math import ceil

import pytest
import torch

from bam_lab.cost.flops import per_token, read_keys
from bam_lab.cost.layer import layers_of
from bam_lab.cost.params import ffn_params
from bam_lab.model import causal_attention, trace
from bam_lab.model.context import Draw
from bam_lab.model.gathered_attention import CHUNK, FILL, KEYS, TILE
from bam_lab.model.grouped import FILL as GROUP_FILL
from bam_lab.model.trace import traced_flops
from bam_lab.spec.experts import relu_router
from tests.model.cases import (
    CASES,
    DENSE,
    EXPERTS,
    FFN_ROUTERS,
    METHODS,
    SHAPES,
    btx,
    expert_choice,
    model_of,
    text,
    top_k,
)


@pytest.mark.parametrize(("method", "block"), CASES)
def test_formula_equals_trace(method, block):
    """Within one block of attention, and over two; both fill up a last segment."""
    length = 32 if block == "serial" else 128
    model, tokens = model_of(METHODS[method], block), text(2, length)
    counted = per_token(model.spec, METHODS[method], EXPERTS, length)
    n = tokens.numel()
    draw = Draw(0, torch.Generator().manual_seed(0))  # of the traced training step
    evaluated, trained = model(tokens).routings, model(tokens, draw).routings
    assumed = assumed_reads(model, tokens)
    forward = n * counted.executed_forward + 4 * (observed_reads(model, evaluated) - assumed)
    training = n * counted.executed_training + 12 * (observed_reads(model, trained) - assumed)
    training -= 3 * 2 * dropped(trained) * ffn_params(model.spec)
    if (router := relu_router(model.method)) is not None:
        for_each = 2 * ffn_params(model.spec)
        forward += for_each * surplus(evaluated, router.active_experts)
        training += 3 * for_each * surplus(trained, router.active_experts)
    assert traced_flops(model, tokens, tokens, training=False) == forward
    if method != "segment_moe-own_mean-expert_choice":  # segments of unequal length, taken whole
        assert traced_flops(model, tokens, tokens, training=True) == training
    if getattr(model.method, "ffn_router", None) in CAPPED:
        assert dropped(trained) > 0 == dropped(evaluated)


def test_experts_that_choose_whole_segments():
    """As many as their capacity, where it comes out even."""
    settings = {"segment_len": 16, "ffn_router": expert_choice(1.0, 1)}
    method = METHODS["segment_moe-own_mean-expert_choice"].model_copy(update=settings)
    model, tokens = model_of(method, max_seq_len=128), text(2, 128)
    counted = per_token(model.spec, method, EXPERTS, 128)
    assert traced_flops(model, tokens, tokens, training=True) == 256 * counted.executed_training


CAPPED = [router for name, router in FFN_ROUTERS.items() if "capacity" in name]


def dropped(routings):
    """Count the choices that a capacity limit dropped."""
    found = [layer.ffn for layer in routings if layer.ffn is not None]
    limited = [r for r in found if r.kept is not None and r.chosen.shape[-1] < EXPERTS]
    return sum(int((~routing.kept).sum()) for routing in limited)


def surplus(routings, active):
    """Count the open ReLU gates beyond `active` a token."""
    gates = [layer.ffn.gates for layer in routings if layer.ffn is not None]
    return sum(int((g > 0).sum()) - active * g[..., 0].numel() for g in gates)


def assumed_reads(model, tokens):
    """Return the multiply-adds of one product of gathered attention, as the formula has them."""
    layers = layers_of(model.method, model.num_experts, model.spec.num_layers)
    keys = sum(read_keys(layer, tokens.shape[1]) for layer in layers if layer.gathered)
    return round(keys * tokens.numel()) * model.spec.num_heads * model.spec.head_dim


def observed_reads(model, routings):
    """Return the same from where each expert's queries really stand, by a plain loop.

    The (row, expert) stretches, longest first, by chunks of as many as have `CHUNK` heads; in a
    chunk by tiles of `TILE` queries; each place of a tile reads the keys up to its last query.
    """
    total = 0
    for layer in routings:
        if layer.attention is None or not model.layers[0].attention.gathers:
            continue
        rows, t, _ = layer.attention.chosen.shape
        stands = [
            [p for p in range(t) if e in layer.attention.chosen[row, p]]
            for row in range(rows)
            for e in range(model.num_experts)
        ]
        stands.sort(key=len, reverse=True)
        size = CHUNK // model.spec.num_kv_heads
        for chunk in (stands[i : i + size] for i in range(0, len(stands), size)):
            for left in range(0, len(chunk[0]), TILE):
                places = min(ceil((len(chunk[0]) - left) / FILL) * FILL, TILE)
                last = max(s[min(left + TILE, len(s)) - 1] for s in chunk if s)
                total += len(chunk) * places * min((last // KEYS + 1) * KEYS, t)
    return total * model.spec.num_heads * model.spec.head_dim


@pytest.mark.parametrize("block", SHAPES)
def test_dense_formula_equals_trace(block):
    model, tokens = model_of(DENSE, block), text(2, 128)
    counted = per_token(model.spec, DENSE, 1, 128)
    assert traced_flops(model, tokens, tokens, True) == 256 * counted.executed_training


def test_bf16_runs_the_same_products_and_fills_groups():
    """Up to FILL - 1 rows for each expert; the formula leaves them out (`model/grouped.py`)."""
    method = btx(top_k(1))
    model, tokens = model_of(method), text(2, 128)
    exact = traced_flops(model, tokens, tokens, training=True)
    rows = model.spec.num_layers * EXPERTS * (GROUP_FILL - 1)
    with torch.autocast("cpu", torch.bfloat16):
        ours = traced_flops(model, tokens, tokens, training=True)
    assert exact < ours <= exact + 3 * 2 * rows * ffn_params(model.spec)
    soft = model_of(METHODS["btx-soft"])
    exact = traced_flops(soft, tokens, tokens, training=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert traced_flops(soft, tokens, tokens, training=True) == exact


def test_torchs_attention_is_counted(monkeypatch):
    """As beyond the blocked length: every query reads every key, the backward 5 products for 2."""
    monkeypatch.setattr(causal_attention, "BLOCKED_UP_TO", 0)
    model, tokens = model_of(DENSE, num_layers=1, num_kv_heads=4), text(2, 128)
    products = per_token(model.spec, DENSE, 1, 128)
    attention = 2 * 2 * 128 * 4 * 8  # 2 products x 2 FLOPs x keys x queries
    blocked = 2 * 2 * 96 * 4 * 8
    forward = products.executed_forward - blocked + attention
    assert traced_flops(model, tokens, tokens, training=False) == 256 * forward
    training = products.executed_training - 3 * blocked + attention * 7 // 2
    assert traced_flops(model, tokens, tokens, training=True) == 256 * training


def test_a_product_without_formula_is_refused():
    with trace._Guard(), pytest.raises(NotImplementedError, match="dot has no FLOP formula"):
        torch.dot(torch.ones(3), torch.ones(3))
