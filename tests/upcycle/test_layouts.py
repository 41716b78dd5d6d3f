"""FFNs of dense models laid out as experts otherwise: split into parts, or blended."""

import pytest
import torch

from bam_lab.errors import SpecError
from bam_lab.model.ffn import ffn_experts_reference
from bam_lab.model.transformer import Transformer
from tests.model.cases import (
    BLOCKS,
    DENSE,
    EXPERTS,
    SOFT,
    btx,
    context_of,
    model_of,
    shape,
    top_k,
)
from tests.upcycle.test_laws import (
    _add_constant_direction,
    _force,
    differing_in_experts,
    distinct,
    generator,
    logits,
    mix,
)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("chunks", [2, 3])
def test_split_experts_are_the_dense_models_in_parts(block, chunks):
    """SwiGLU is a sum over hidden channels, so the parts of an FFN add up to it.

    A router that gives the parts of a model its logit gives each part 1 / chunks of the model's
    gate: the soft split mixture is the soft mixture of models whose FFNs are divided by chunks.
    """
    dense = distinct(block, 2)
    split = mix(btx(SOFT, expert_layout="split", chunks=chunks), dense)
    whole = mix(btx(SOFT), dense)
    with torch.no_grad():
        for parts, layer in zip(split.layers, whole.layers, strict=True):
            parts.ffn.router.copy_(layer.ffn.router.repeat_interleave(chunks, 0))
            layer.ffn.down.div_(chunks)
    torch.testing.assert_close(logits(split), logits(whole))
    widths = {tuple(layer.ffn.gate.shape) for layer in split.layers}
    assert widths == {(2 * chunks, 24 // chunks, 16)}


@pytest.mark.parametrize("block", BLOCKS)
def test_split_experts_forced_to_one_models_parts(block):
    """Top-k over just these: gates of 1 / chunks each, so the model with its FFN divided."""
    method = btx(top_k(2, True), expert_layout="split", chunks=2)
    dense = differing_in_experts(btx(top_k(1)), block)[:2]
    mixture = mix(method, dense)
    for model in (mixture, *dense):
        _add_constant_direction(model)
    _force(mixture, [2, 3])
    with torch.no_grad():
        for layer in dense[1].layers:
            layer.ffn.down.div_(2)
    torch.testing.assert_close(logits(mixture), logits(dense[1]))


@pytest.mark.parametrize("block", BLOCKS)
def test_blended_experts_hold_a_part_of_every_model(block):
    """Expert n sums the n-th parts of all models: all experts with gates of 1 sum all models."""
    dense = distinct(block)
    ffn = mix(btx(SOFT, expert_layout="blended"), dense).layers[1].ffn
    x = torch.randn(2, 10, 16, generator=generator(1))
    ones = torch.ones(2, 10, EXPERTS)
    alone = [model.layers[1].ffn(x, x, context_of(10))[0] for model in dense]
    torch.testing.assert_close(ffn_experts_reference(ffn, x, ones), sum(alone))
    for n in range(EXPERTS):
        rows = slice(6 * n, 6 * n + 6)
        parts = [model.layers[1].ffn.gate[rows] for model in dense]
        assert torch.equal(ffn.gate[n], torch.cat(parts))
        parts = [model.layers[1].ffn.down[:, rows] for model in dense]
        assert torch.equal(ffn.down[n], torch.cat(parts, 1))


@pytest.mark.parametrize("block", BLOCKS)
def test_blended_equal_models(block):
    """Expert n of E is E times the n-th part of the model: chosen alike, they are the model."""
    seed_model = model_of(DENSE, block)
    blended = mix(btx(SOFT, expert_layout="blended"), [seed_model] * EXPERTS)
    with torch.no_grad():
        for layer in blended.layers:
            layer.ffn.router.zero_()
    torch.testing.assert_close(logits(blended), logits(seed_model))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"expert_layout": "split"}, "method.chunks must be given with expert_layout: split"),
        ({"chunks": 2}, "method.chunks must be given with expert_layout: split, and only there"),
        ({"expert_layout": "split", "chunks": 5}, "method.chunks must divide ffn_dim 24, got 5"),
        ({"expert_layout": "blended"}, "method.expert_layout must not be blended .* experts 5 "),
    ],
)
def test_layouts_that_do_not_fit(settings, problem):
    with pytest.raises(SpecError, match=problem):
        Transformer(shape(), btx(SOFT, **settings), 5)
