"""Analytic cost against the built model: parameters counted, FLOPs traced.

Two things of the executed FLOPs are the text's doing, and the formula assumes them: how far apart
an expert's queries stand (`model/gathered_attention.py`), and how many choices a capacity limit
drops (or a capacity, rounded up to whole tokens, adds). Both are counted here by plain loops over
what the routers chose.
"""

from math import ceil
from typing import Any

import torch
from torch import Tensor

from bam_lab.cost.decode import decode
from bam_lab.cost.flops import BLOCK, per_token, read_keys
from bam_lab.cost.layer import LayerExperts, layers_of
from bam_lab.cost.params import count, expert_params
from bam_lab.model.gathered_attention import CHUNK, FILL, KEYS, TILE
from bam_lab.model.generate import Decoder
from bam_lab.model.trace import counted_flops, traced_flops
from bam_lab.model.transformer import Transformer
from bam_lab.spec.experts import has_bos, relu_router
from bam_lab.spec.laws import Rule, no_generation
from bam_lab.upcycle.probe import by_place, training_pass


def costs(model: Transformer, rows: Tensor) -> dict[str, Any]:
    """Return parameters and FLOPs of `rows` [N, T+1] by formula, beside what was built and ran.

    Beside training and evaluation, a token decoded through a cache where the method can generate.
    `by_routing` is what the text's routing adds to the formula. `model_forward` and
    `model_training` are what the mathematics needs; they have no trace.
    """
    tokens, targets = rows[:, :-1], rows[:, 1:]
    n, length = tokens.numel(), tokens.shape[1]
    flops = per_token(model.spec, model.method, model.num_experts, length)
    params = count(model.spec, model.method, model.num_experts).total
    held = sum(parameter.numel() for parameter in model.parameters())
    facts: dict[str, Any] = {"parameters": _fact(params, held)}
    for name, formula, training in (
        ("executed_forward", flops.executed_forward, False),
        ("executed_training", flops.executed_training, True),
    ):
        traced = traced_flops(model, tokens, targets, training=training)
        more = by_routing(model, tokens, training=training)
        # A token's FLOPs are rounded to a whole number where attention's mean is not one.
        facts[name] = _fact(n * formula, traced, more, off=n if length % BLOCK else 0)
    if no_generation(model.method) is None:
        facts["decoded_token"] = _decoded_token(model, tokens)
    return facts | {
        "model_forward": n * flops.model_forward,
        "model_training": n * flops.model_training,
    }


def _decoded_token(model: Transformer, tokens: Tensor) -> dict[str, Any]:
    """Compare one cached step of every row: all but two of its tokens are the prompt."""
    batch, length = tokens.shape
    decoder = Decoder(model, tokens[:, :-2], None, 2)
    with torch.no_grad():
        decoder.start()
        traced = counted_flops(lambda: decoder.step(tokens[:, -2]))
    step = decode(model.spec, model.method, model.num_experts, length - 1)
    return _fact(batch * step.flops, traced, _open_gates(model, tokens[:, :-1]))


@torch.no_grad()
def _open_gates(model: Transformer, tokens: Tensor) -> int:
    """Return what ReLU gates of the last of `tokens` [B, T] add to the formula of one step."""
    router, total = relu_router(model.method), 0
    if router is None:
        return 0
    layers = layers_of(model.method, model.num_experts, model.spec.num_layers)
    for routing, layer in zip(model(tokens).routings, layers, strict=True):
        if routing.ffn is not None:
            run = int((routing.ffn.gates[:, -1] > 0).sum()) - router.active_experts * len(tokens)
            total += 2 * run * expert_params(model.spec, layer)
    return total


def _fact(formula: int, model: int, more: int = 0, off: int = 0) -> dict[str, Any]:
    holds = abs(formula + more - model) <= off
    return {"formula": formula, "by_routing": more, "model": model, "holds": holds}


@torch.no_grad()
def by_routing(model: Transformer, tokens: Tensor, *, training: bool) -> int:
    """Return the executed FLOPs of `tokens` [B, T] beyond the formula's, less what is dropped."""
    routings = model(tokens, training_pass(0) if training else None).routings  # as it is traced
    rule: Rule = "training" if training else "inference"
    layers = layers_of(model.method, model.num_experts, model.spec.num_layers, rule)
    total = 0
    for routing, layer in zip(routings, layers, strict=True):
        if layer.gathered and routing.attention is not None:
            reads = _reads(model, routing.attention.chosen) - _even_reads(model, layer, tokens)
            total += 2 * 2 * reads * (3 if training else 1)  # scores, and weighted values
        if routing.ffn is not None and routing.ffn.kept is not None:
            places = tokens.shape[1] + has_bos(model.method)
            run = int(by_place(routing.ffn.kept, model.method, places).sum())
            missing = round(layer.ffn_active * tokens.shape[0] * places) - run
            times = 1 if not training else 2 if "ffn" in layer.frozen else 3
            total -= 2 * missing * expert_params(model.spec, layer) * times
    return total


def _even_reads(model: Transformer, layer: LayerExperts, tokens: Tensor) -> int:
    """Return the multiply-adds of one product of gathered attention, as the formula has them."""
    keys = read_keys(layer, tokens.shape[1]) * tokens.numel()
    return round(keys) * model.spec.num_heads * model.spec.head_dim


def _reads(model: Transformer, chosen: Tensor) -> int:
    """Return the same from where each expert's queries stand.

    The (row, expert) stretches, longest first, by chunks of as many as have `CHUNK` heads; in a
    chunk by tiles of `TILE` queries; each place of a tile reads the keys up to its last query.
    """
    length = chosen.shape[1]
    stands = [
        (row == expert).any(-1).nonzero().flatten().tolist()
        for row in chosen
        for expert in range(model.num_experts)
    ]
    stands.sort(key=len, reverse=True)
    size, total = max(CHUNK // model.spec.num_kv_heads, 1), 0
    for chunk in (stands[i : i + size] for i in range(0, len(stands), size)):
        for left in range(0, len(chunk[0]), TILE):
            places = min(ceil((len(chunk[0]) - left) / FILL) * FILL, TILE)
            last = max(stand[min(left + TILE, len(stand)) - 1] for stand in chunk if stand)
            total += len(chunk) * places * min((last // KEYS + 1) * KEYS, length)
    return total * model.spec.num_heads * model.spec.head_dim
