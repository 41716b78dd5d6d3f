"""On a GPU: the same results as on the CPU, in float32 and bf16, and one optimizer step."""

import pytest
import torch

from bam_lab.model.losses import next_token_loss
from bam_lab.model.router_losses import router_losses, weigh
from bam_lab.train.optim import DEFAULTS, adamw
from tests.model.cases import CASES, METHODS, model_of, text

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
BF16 = 0.05
"""Relative distance of the hidden states at half the tokens, as on the CPU."""


def loss_of(model, tokens):
    output = model(tokens[:, :-1])
    nll = next_token_loss(output.hidden, model.lm_head_weight, tokens[:, 1:])
    return nll + weigh(router_losses(output, model.method), model.method, model.l1_weight)


@pytest.mark.parametrize(("method", "block"), CASES)
def test_float32_equals_the_cpu(method, block):
    model, tokens = model_of(METHODS[method], block), text()
    wanted = model(tokens).hidden
    got = model.cuda()(tokens.cuda()).hidden.cpu()
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("method", "block"), CASES)
def test_bf16_follows_float32_and_learns(method, block):
    model, tokens = model_of(METHODS[method], block).cuda(), text().cuda()
    exact = model(tokens).hidden
    with torch.autocast("cuda", torch.bfloat16):
        reduced = model(tokens).hidden
    distance = (reduced - exact).norm(dim=-1) / exact.norm(dim=-1)
    assert distance.median() < BF16
    optimizer = adamw(model, DEFAULTS)
    losses = []
    for _ in range(2):
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(model, tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[1] < losses[0]
