"""Merged SwiGLUs against the plain loop: many groups, many experts, bf16, and what is kept."""

import pytest
import torch

from bam_lab.model import merged
from bam_lab.model.merged import LEAST_GROUPS, merge, merged_swiglu, merged_swiglu_reference

D, F, S = 16, 24, 6


def parts(groups, experts, seed=0):
    """Return places, gates and the experts' three matrices."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*sizes):
        return torch.randn(*sizes, generator=generator)

    logits = draw(groups, experts)
    stacks = [0.3 * draw(experts, *size) for size in ((F, D), (F, D), (D, F))]
    return [tensor.requires_grad_() for tensor in (draw(groups, S, D), logits.softmax(-1), *stacks)]


def gradients(y, inputs):
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float32)
    return torch.autograd.grad((y * weights).mean(0).sum(), inputs)


@pytest.mark.parametrize("experts", [4, 8, 32])
@pytest.mark.parametrize("groups", [1, LEAST_GROUPS, 2 * LEAST_GROUPS + 5])
def test_groups_in_chunks_equal_the_loop(groups, experts):
    """One chunk, a full one, and several of which the last is not full."""
    inputs = parts(groups, experts)
    y, wanted = merged_swiglu(*inputs), merged_swiglu_reference(*inputs)
    torch.testing.assert_close(y, wanted)
    torch.testing.assert_close(gradients(y, inputs), gradients(wanted, inputs))


def test_bf16_merges_are_float32_merges_rounded_once(monkeypatch):
    """By columns that do not divide the weights; so copies merge into their model."""
    monkeypatch.setattr(merged, "COLUMNS", 100)
    _, gates, *stacks = (tensor.detach() for tensor in parts(40, 8))
    for stack in stacks:
        with torch.autocast("cpu", torch.bfloat16):
            found = merge(gates, stack)
            alike = merge(gates, stack[:1].expand_as(stack))
        wanted = torch.einsum("me,eoi->moi", gates, stack).bfloat16()
        assert (found != wanted).float().mean() < 1e-3  # float32 sums in another order
        assert torch.equal(alike, stack[0].bfloat16().expand_as(alike))


BF16 = 0.02
"""Relative distance of outputs and gradients; 0.006 is the worst measured."""


def test_bf16_follows_float32(monkeypatch):
    monkeypatch.setattr(merged, "COLUMNS", 100)
    inputs = parts(LEAST_GROUPS + 5, 8)
    exact = merged_swiglu_reference(*inputs)
    wanted = gradients(exact, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        y = merged_swiglu(inputs[0].bfloat16(), *inputs[1:])
    assert y.dtype == torch.bfloat16
    found = gradients(y.float(), inputs)
    for ours, theirs in zip((y.float(), *found), (exact, *wanted), strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() < BF16 * theirs.norm()


def test_no_merged_weight_is_kept_for_the_backward():
    """Places, gates, experts, gate and up: nothing of the size of all merges."""
    kept = []
    inputs = parts(64, 4)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        merged_swiglu(*inputs)
    assert sum(t.numel() for t in kept) == sum(t.numel() for t in inputs) + 2 * 64 * S * F
