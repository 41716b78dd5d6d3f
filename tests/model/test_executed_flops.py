"""Executed FLOPs by formula against what a trace of the model counts."""

import pytest
import torch

from bam_lab.cost.flops import per_token
from bam_lab.cost.params import ffn_params
from bam_lab.model import causal_attention, trace
from bam_lab.model.grouped import FILL
from bam_lab.model.trace import traced_flops
from tests.model.cases import CASES, DENSE, EXPERTS, METHODS, btx, model_of, text, top_k


@pytest.mark.parametrize(("method", "block"), CASES)
def test_formula_equals_trace(method, block):
    """Within one block of attention, and over two; both fill up a last segment."""
    length = 32 if block == "serial" else 128
    model, tokens = model_of(METHODS[method], block), text(2, length)
    counted = per_token(model.spec, METHODS[method], EXPERTS, length)
    n = tokens.numel()
    assert traced_flops(model, tokens, tokens, training=False) == n * counted.executed_forward
    assert traced_flops(model, tokens, tokens, training=True) == n * counted.executed_training


def test_dense_formula_equals_trace():
    model, tokens = model_of(DENSE), text(2, 128)
    counted = per_token(model.spec, DENSE, 1, 128)
    assert traced_flops(model, tokens, tokens, True) == 256 * counted.executed_training


def test_bf16_runs_the_same_products_and_fills_groups():
    """Up to FILL - 1 rows for each expert; the formula leaves them out (`model/grouped.py`)."""
    method = btx(top_k(1))
    model, tokens = model_of(method), text(2, 128)
    exact = traced_flops(model, tokens, tokens, training=True)
    rows = model.spec.num_layers * EXPERTS * (FILL - 1)
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
