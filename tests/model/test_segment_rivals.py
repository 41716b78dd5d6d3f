"""Lory's rivals against plain loops: segment experts, token-level merging, SMEAR, Soft MoE."""

import pytest
import torch

from bam_lab.model.context import Draw
from bam_lab.model.merged import merged_swiglu_reference
from bam_lab.model.segment_moe import SegmentMoE, segment_moe_reference
from bam_lab.model.smear import SequenceMergedFFN
from bam_lab.model.soft_moe import SoftMoE, soft_moe_reference
from bam_lab.model.token_merging import TokenMergedFFN, token_merged_reference
from bam_lab.spec.methods import SegmentMoEMethod, SoftMoEMethod
from tests.model.cases import EXPERTS, SEGMENT, context_of, expert_choice, shape, top_k

ROUTERS = {
    "top-1": top_k(1),
    "top-2-renormalized": top_k(2, renormalize=True),
    "expert-choice": expert_choice(1.0, 1),
}


def filled(module):
    """Draw every weight, large enough for routers to have opinions."""
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    return module


def rows(length, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, length, 16, generator=generator).requires_grad_()


def assert_equal(module, x, y, wanted):
    """Compare outputs, and gradients of the inputs and of every weight."""
    torch.testing.assert_close(y, wanted)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
    inputs = (x, *module.parameters())
    got = torch.autograd.grad((y * weights).sum(), inputs, retain_graph=True)
    want = torch.autograd.grad((wanted * weights).sum(), inputs)
    assert all(gradient.norm() > 0 for gradient in want)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("slots", [1, 3])
def test_soft_moe_equals_the_loop(slots):
    module = filled(
        SoftMoE(shape(), SoftMoEMethod(method="soft_moe", slots_per_expert=slots), EXPERTS)
    )
    x = rows(23)
    y, routing = module(x, x, context_of(23))
    assert_equal(module, x, y, soft_moe_reference(module, x))
    sums = routing.gates.sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_token_merging_equals_the_loop():
    module = filled(TokenMergedFFN(shape(), EXPERTS))
    x = rows(23)
    y, routing = module(x, x, context_of(23))
    torch.testing.assert_close(routing.gates, (x @ module.router.T).softmax(-1))
    assert_equal(module, x, y, token_merged_reference(module, x, routing.gates))


def test_smear_equals_the_loop():
    module = filled(SequenceMergedFFN(shape(), EXPERTS))
    x = rows(23)
    y, _ = module(x, x, context_of(23))
    gates = (x.mean(1) @ module.router.T).softmax(-1)
    wanted = merged_swiglu_reference(x, gates, module.gate, module.up, module.down)
    assert_equal(module, x, y, wanted)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("first", ["own_mean", "bos"])
@pytest.mark.parametrize("router", ROUTERS)
def test_segment_experts_equal_the_loop(router, first, training):
    """A last, shorter segment too; what the router decides is `test_lory.py`'s."""
    method = SegmentMoEMethod(
        method="segment_moe",
        segment_len=SEGMENT,
        first_segment=first,
        ffn_router=ROUTERS[router],
    )
    module = filled(SegmentMoE(shape(), method, EXPERTS))
    x = rows(4 * SEGMENT - 3 + module.bos)
    context = context_of(x.shape[1])
    if training:
        context = context._replace(draw=Draw(0, torch.Generator().manual_seed(0)))
    y, routing = module(x, x, context)
    assert routing.gates.shape == (2, 4 + module.bos, EXPERTS)
    assert_equal(module, x, y, segment_moe_reference(module, x, routing))


@pytest.mark.parametrize("first", ["own_mean", "bos"])
def test_a_segment_goes_where_the_one_before_it_points(first):
    method = SegmentMoEMethod(
        method="segment_moe", segment_len=SEGMENT, first_segment=first, ffn_router=top_k(1)
    )
    module = filled(SegmentMoE(shape(), method, EXPERTS))
    x = rows(4 * SEGMENT + module.bos)
    chosen = module(x, x, context_of(x.shape[1]))[1].chosen[..., 0]
    own = (x[:, module.bos :].unflatten(1, (4, SEGMENT)).mean(2) @ module.router.T).argmax(-1)
    assert torch.equal(chosen[:, 1 + module.bos :], own[:, :-1])
    first_one = (x[:, 0] @ module.router.T).argmax(-1) if module.bos else own[:, 0]
    assert torch.equal(chosen[:, module.bos], first_one)
