"""FFN experts against all experts on all tokens, forward and gradients."""

import pytest
import torch

from bam_lab.model.ffn import FFNExperts, ffn_experts_reference
from tests.model.cases import EXPERTS, ROUTERS, context_of, shape, top_k


@pytest.mark.parametrize("name", ROUTERS)
def test_grouped_equals_masked(name):
    module = FFNExperts(shape(), ROUTERS[name], EXPERTS)
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    x = torch.randn(2, 50, 16, generator=generator).requires_grad_()
    weights = torch.randn(2, 50, 16, generator=generator)
    y, routing = module(x, x, context_of(x.shape[1]))
    wanted = ffn_experts_reference(module, x, routing.gates)
    torch.testing.assert_close(y, wanted)
    inputs = (x, *module.parameters())
    got = torch.autograd.grad((y * weights).sum(), inputs, retain_graph=True)
    want = torch.autograd.grad((wanted * weights).sum(), inputs)
    torch.testing.assert_close(got, want)


def test_an_expert_without_tokens_gets_no_gradient():
    module = FFNExperts(shape(), top_k(1), EXPERTS)
    for parameter in module.parameters():
        torch.nn.init.constant_(parameter, 0.1)
    with torch.no_grad():
        module.router[:] = -torch.arange(EXPERTS)[:, None]
    x = torch.rand(1, 5, 16)
    y, routing = module(x, x, context_of(x.shape[1]))
    assert (routing.chosen == 0).all()
    y.sum().backward()
    assert module.gate.grad[0].norm() > 0
    assert module.gate.grad[1:].norm() == 0
