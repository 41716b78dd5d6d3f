"""Fast attention against the plain loop and the explicit softmax, forward and gradients."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from bam_lab.model import gathered_attention
from bam_lab.model.attention import AttentionExperts
from bam_lab.model.attention_reference import attention_experts_reference, attention_reference
from bam_lab.model.causal_attention import causal_attention
from tests.model.cases import DENSE, EXPERTS, ROUTERS, context_of, model_of, shape


def filled(module, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    return module


def rope_of(length):
    return context_of(length).rope


def gradients(y, weights, *inputs):
    return torch.autograd.grad((y * weights).sum(), inputs, retain_graph=True)


@pytest.mark.parametrize(
    ("router", "kv", "kv_heads"),
    list(itertools.product(ROUTERS, ("shared", "per_expert"), (4, 2, 1))),
)
def test_attention_experts_equal_the_loop(router, kv, kv_heads):
    spec = shape(num_kv_heads=kv_heads)
    module = filled(AttentionExperts(spec, ROUTERS[router], kv, EXPERTS))
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 130, 16, generator=generator).requires_grad_()
    weights = torch.randn(2, 130, 16, generator=generator)
    y, routing = module(x, x, context_of(130))
    wanted = attention_experts_reference(module, x, routing.gates, rope_of(130))
    torch.testing.assert_close(y, wanted)
    inputs = (x, *module.parameters())
    for got, want in zip(
        gradients(y, weights, *inputs), gradients(wanted, weights, *inputs), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=GRADIENT_RTOL, atol=GRADIENT_ATOL)


@pytest.mark.parametrize("router", ["top-1", "top-2"])
@pytest.mark.parametrize("kept", [0, 1024])
def test_gathered_queries_of_uneven_experts_equal_the_loop(router, kept, monkeypatch):
    """One expert takes nearly all of a row, one nothing at all; more than one chunk and tile."""
    monkeypatch.setattr(gathered_attention, "CHUNK", 4)
    monkeypatch.setattr(gathered_attention, "KEPT_UP_TO", kept)
    module = filled(AttentionExperts(shape(), ROUTERS[router], "per_expert", EXPERTS))
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, 130, 16, generator=generator)
    with torch.no_grad():
        module.router[0], module.router[3] = 0.0, -module.router[1]
        module.router[2] = 0.0
        x[:, :, 0], module.router[1, 0], module.router[0, 0] = 1.0, -20.0, 3.0
        x[0] = x[0, 100]
    x.requires_grad_()
    weights = torch.randn(x.shape, generator=generator)
    y, routing = module(x, x, context_of(130))
    assert (routing.chosen == 1).sum() == 0
    wanted = attention_experts_reference(module, x, routing.gates, rope_of(130))
    torch.testing.assert_close(y, wanted)
    inputs = (x, *module.parameters())
    for got, want in zip(
        gradients(y, weights, *inputs), gradients(wanted, weights, *inputs), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=GRADIENT_RTOL, atol=GRADIENT_ATOL)


GRADIENT_RTOL, GRADIENT_ATOL = 1e-4, 1e-4
"""Sums of 260 products of order 1 in another order; the worst measured difference is 3e-5."""


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_dense_attention_equals_the_explicit_softmax(kv_heads):
    model = model_of(DENSE, num_kv_heads=kv_heads)
    module = model.layers[0].attention
    x = torch.randn(2, 70, 16, generator=torch.Generator().manual_seed(1))
    y, _ = module(x, x, context_of(70))
    weights = (module.query, module.key, module.value, module.output)
    torch.testing.assert_close(y, attention_reference(x, *weights, rope_of(70), module.spec))


@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("groups", [1, 3])
def test_blocked_attention_equals_torch(length, groups):
    """At borders of blocks too; queries of a group share keys as in grouped-query attention."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 2, groups, length, 8, generator=generator).requires_grad_()
    k, v = (torch.randn(2, 2, length, 8, generator=generator).requires_grad_() for _ in range(2))
    weights = torch.randn(q.shape, generator=generator)
    y = causal_attention(q, k, v)
    wanted = F.scaled_dot_product_attention(
        q.flatten(1, 2), k, v, is_causal=True, enable_gqa=True
    ).view_as(q)
    torch.testing.assert_close(y, wanted)
    for got, want in zip(
        gradients(y, weights, q, k, v), gradients(wanted, weights, q, k, v), strict=True
    ):
        torch.testing.assert_close(got, want)


def test_long_sequences_take_torch_and_agree():
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 2, 2, 1030, 8, generator=generator)
    k, v = (torch.randn(1, 2, 1030, 8, generator=generator) for _ in range(2))
    long = causal_attention(q, k, v)
    short = causal_attention(q[..., :1000, :], k[..., :1000, :], v[..., :1000, :])
    torch.testing.assert_close(long[..., :1000, :], short)


@pytest.mark.parametrize("router", ROUTERS)
def test_shared_keys_equal_own_keys_of_equal_weight(router):
    shared = filled(AttentionExperts(shape(), ROUTERS[router], "shared", EXPERTS))
    own = AttentionExperts(shape(), ROUTERS[router], "per_expert", EXPERTS)
    state = shared.state_dict()
    for name in ("key", "value"):
        state[name] = state[name].expand(EXPERTS, -1, -1)
    own.load_state_dict(state)
    x = torch.randn(2, 70, 16, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(own(x, x, context_of(70))[0], shared(x, x, context_of(70))[0])
