"""Attention experts as the papers write them: a loop over experts, softmax written out.

The oracle of `attention.py` in tests: y = sum_e g_e(x) MHA_e(x) (arXiv:2408.08274 §4), every expert
run on every token, nothing fused.

Shapes: B batch, T tokens, D dim, H heads, K key-value heads, C head_dim.
"""

from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bam_lab.model.attention import AttentionExperts
from bam_lab.model.layers import Rope
from bam_lab.spec.model import ModelSpec


def attention_experts_reference(
    module: AttentionExperts,
    x: Float[Tensor, "B T D"],
    gates: Float[Tensor, "B T E"],
    rope: Rope,
    starts: Int[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B T D"]:
    """Sum the experts' whole outputs, each weighted by its gate."""
    y = torch.zeros_like(x)
    for e in range(gates.shape[-1]):
        own = module.kv == "per_expert"
        key, value = (module.key[e], module.value[e]) if own else (module.key, module.value)
        output = attention_reference(
            x, module.query[e], key, value, module.output[e], rope, module.spec, starts
        )
        y = y + gates[..., e : e + 1] * output
    return y


def attention_reference(
    x: Float[Tensor, "B T D"],
    query: Float[Tensor, "HC D"],
    key: Float[Tensor, "KC D"],
    value: Float[Tensor, "KC D"],
    output: Float[Tensor, "D HC"],
    rope: Rope,
    spec: ModelSpec,
    starts: Int[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B T D"]:
    """Attend with one set of heads: project, rotate, softmax, weight, project back.

    `starts` names the first place that each token sees, if not the row's first.
    """
    b, t, _ = x.shape

    def heads(weight: Tensor, count: int) -> Tensor:
        split = (x @ weight.T).view(b, t, count, spec.head_dim).transpose(1, 2)  # B count T C
        return split.repeat_interleave(spec.num_heads // count, dim=1)  # B H T C

    def turned(z: Tensor) -> Tensor:
        if rope is None:
            return z
        cos, sin = rope
        first, second = z.chunk(2, -1)
        return z * cos + torch.cat((second, first), -1) * sin

    q, k = turned(heads(query, spec.num_heads)), turned(heads(key, spec.num_kv_heads))
    scores = q @ k.mT / spec.head_dim**0.5  # B H T T
    hidden = torch.ones(b, t, t, dtype=torch.bool).triu(1)
    if starts is not None:
        for row, place in product(range(b), range(t)):
            hidden[row, place, : int(starts[row, place])] = True
    weights = scores.masked_fill(hidden.unsqueeze(1), float("-inf")).softmax(-1)
    y = weights @ heads(value, spec.num_kv_heads)
    return torch.matmul(y.transpose(1, 2).reshape(b, t, -1), output.T)
