"""The chunked next-token loss against all logits at once."""

import pytest
import torch
import torch.nn.functional as F

from bam_lab.model.losses import next_token_loss, next_token_loss_reference, token_nats


def inputs(tokens, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    hidden = (torch.randn(2, tokens // 2, 16, generator=generator) * scale).requires_grad_()
    weight = torch.randn(61, 16, generator=generator).requires_grad_()
    return hidden, weight, torch.randint(61, (2, tokens // 2), generator=generator)


def exact(hidden, weight, targets, reduction):
    """Return the gradients of 3 losses in float64, and the sums of their terms' sizes."""
    hidden, weight, flat = hidden.detach().double(), weight.detach().double(), targets.flatten()
    share = 3 / (len(flat) if reduction == "mean" else 1)
    error = (hidden.flatten(0, 1) @ weight.T).softmax(-1) - F.one_hot(flat, len(weight))

    def products(error, hidden, weight):
        return (error @ weight).view_as(hidden), error.T @ hidden.flatten(0, 1)

    terms = products(share * error.abs(), hidden.abs(), weight.abs())
    return products(share * error, hidden, weight), terms


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("tokens", [10, 256, 700])
def test_float32_equals_the_oracle(tokens, reduction):
    hidden, weight, targets = inputs(tokens)
    got = next_token_loss(hidden, weight, targets, reduction)
    want = next_token_loss_reference(hidden, weight, targets, reduction)
    torch.testing.assert_close(got, want)
    gradients = torch.autograd.grad(3 * got, (hidden, weight))
    wanted, terms = exact(hidden, weight, targets, reduction)
    for mine, want, size in zip(gradients, wanted, terms, strict=True):
        # The default tolerance, and a last digit of what is added up and nearly cancels.
        bound = 1e-5 + 1.3e-6 * want.abs() + torch.finfo(torch.float32).eps * size
        assert ((mine - want).abs() <= bound).all()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("tokens", [10, 256, 700])
def test_bf16_is_as_near_as_unchunked_bf16(tokens, reduction):
    hidden, weight, targets = inputs(tokens)
    exact = next_token_loss_reference(hidden, weight, targets, reduction)
    with torch.autocast("cpu", torch.bfloat16):
        unchunked = next_token_loss_reference(hidden, weight, targets, reduction)
        ours = next_token_loss(hidden, weight, targets, reduction)
    torch.testing.assert_close(ours, exact, rtol=1e-3, atol=0)
    gradients = [torch.autograd.grad(3 * x, (hidden, weight)) for x in (exact, unchunked, ours)]
    for want, usual, got in zip(*gradients, strict=True):
        usual_error, error = ((x - want).norm() / want.norm() for x in (usual, got))
        assert error < BF16_EXCESS * usual_error
        assert usual_error < 0.01


BF16_EXCESS = 1.25
"""Our error over that of the same loss unchunked under autocast; 1.0x measured."""


def test_bf16_of_hopeless_tokens_is_finite_and_right():
    """Probabilities below float32's range: the nats come from the logits then."""
    hidden, weight, targets = inputs(10, scale=60.0)
    with torch.autocast("cpu", torch.bfloat16):
        got = next_token_loss(hidden, weight, targets)
    want = next_token_loss_reference(hidden, weight, targets)
    assert want > 150
    torch.testing.assert_close(got, want, rtol=1e-2, atol=0)


def test_token_nats_are_the_losses_terms():
    hidden, weight, targets = inputs(700)
    nats = token_nats(hidden, weight, targets)
    assert nats.shape == targets.shape
    torch.testing.assert_close(nats.mean(), next_token_loss(hidden, weight, targets).detach())
