"""Lory's merged FFN against the plain loop; what routes a segment, and what learns from it."""

import pytest
import torch

from bam_lab.model.lory import MergedFFN, merged_ffn_reference
from tests.model.cases import EXPERTS, SEGMENT, context_of, lory, shape


def random_ffn(first_segment):
    module = MergedFFN(shape(), lory(first_segment), EXPERTS)
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    return module


def rows(length, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, length, 16, generator=generator).requires_grad_()


@pytest.mark.parametrize("first_segment", ["own_mean", "uniform"])
@pytest.mark.parametrize("length", [5 * SEGMENT, 5 * SEGMENT - 3, SEGMENT, 4])
def test_batched_segments_equal_the_loop(first_segment, length):
    """Whole segments, a shorter last one, one alone, and less than one."""
    module, x = random_ffn(first_segment), rows(length)
    y, _ = module(x, x, context_of(x.shape[1]))
    wanted = merged_ffn_reference(module, x)
    torch.testing.assert_close(y, wanted)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
    inputs = (x, module.gate, module.up, module.down)
    if length > SEGMENT:
        inputs += (module.router,)
    got = torch.autograd.grad((y * weights).sum(), inputs)
    want = torch.autograd.grad((wanted * weights).sum(), inputs)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("first_segment", ["own_mean", "uniform"])
def test_a_segment_is_routed_by_the_mean_of_the_one_before(first_segment):
    module, x = random_ffn(first_segment), rows(4 * SEGMENT)
    gates = module(x, x, context_of(x.shape[1]))[1].gates
    means = x.unflatten(1, (4, SEGMENT)).mean(2)
    own = (means @ module.router.T).softmax(-1)
    torch.testing.assert_close(gates[:, 1:], own[:, :-1])
    first = own[:, 0] if first_segment == "own_mean" else torch.full_like(own[:, 0], 1 / EXPERTS)
    torch.testing.assert_close(gates[:, 0], first)


@pytest.mark.parametrize("first_segment", ["own_mean", "uniform"])
def test_the_first_segments_loss_teaches_the_router_nothing(first_segment):
    module, x = random_ffn(first_segment), rows(3 * SEGMENT)
    module(x, x, context_of(x.shape[1]))[0][:, :SEGMENT].square().sum().backward()
    assert module.router.grad.norm() == 0
    assert module.gate.grad.norm() > 0


def test_gates_sum_to_one_in_float32_under_autocast():
    module, x = random_ffn("own_mean"), rows(3 * SEGMENT)
    with torch.autocast("cpu", torch.bfloat16):
        y, routing = module(x.bfloat16(), x, context_of(x.shape[1]))
    assert y.dtype == torch.bfloat16
    sums = routing.gates.sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
