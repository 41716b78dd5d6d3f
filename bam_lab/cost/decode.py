"""FLOPs and cache bytes of one decoded token, through a cache of keys and values.

What the mathematics needs and what our code runs are the same here, rows of one length given: one
vector goes through the modules that its token uses, and reads every key up to its own. (A shorter
row of a batch reads as many keys as the longest; in bf16 on a CPU, groups of many rows are filled
up, see `model/grouped.py`. Of ReLU gates, as many are taken to be open as they are driven to.)

Lory's token goes through one dense FFN, already merged; a step that begins a segment and decides
again routes and merges first (arXiv:2405.03133 §3). Branch-Train-Merge runs every model, and the
LM heads of the `top_k` that are mixed.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from bam_lab.cost import kv
from bam_lab.cost.layer import layers_of
from bam_lab.cost.params import expert_params, ffn_params, key_params, query_params
from bam_lab.cost.segments import places_of
from bam_lab.errors import SpecError
from bam_lab.spec.experts import shape_of
from bam_lab.spec.laws import no_generation
from bam_lab.spec.methods import (
    BTMMethod,
    LoryMethod,
    MethodSpec,
    SegmentMoEMethod,
    TokenMergingMethod,
)
from bam_lab.spec.model import ModelSpec


@dataclass(frozen=True)
class DecodeCost:
    """Hold what one decoded token costs.

    Attributes:
        flops: of one step that decides nothing for a segment, LM head included.
        deciding_flops: what a step that begins a segment adds: the routers, and what they merge.
        mean_flops: `flops`, and `deciding_flops` shared out over a segment.
        cache_bytes: of keys, values and merged FFNs of one row.
    """

    flops: int
    deciding_flops: int
    mean_flops: int
    cache_bytes: int


def decode(
    model: ModelSpec,
    method: MethodSpec,
    num_experts: int,
    context: int,
    rule: Literal["prompt", "segment"] = "prompt",
    bytes_per_number: int = 2,
) -> DecodeCost:
    """Count one decoded token.

    Args:
        model: the seed model's shape.
        method: dense or which mixture.
        num_experts: its experts.
        context: tokens of the row, the one that is read included.
        rule: whether methods that route segments decide once, from the prompt, or again.
        bytes_per_number: 2 in bf16.

    Raises:
        SpecError: the method cannot generate.
    """
    if reason := no_generation(method):
        raise SpecError(reason)
    own = shape_of(method, model)
    layers = layers_of(method, num_experts, own.num_layers)
    places = places_of(method, context)
    by_segment = isinstance(method, LoryMethod | SegmentMoEMethod)
    heads = method.top_k if isinstance(method, BTMMethod) else 1
    merged = num_experts if isinstance(method, TokenMergingMethod) else 1
    total, deciding = Fraction(heads * own.dim * own.vocab_size), 0
    for experts in layers:
        read = 2 * own.num_heads * own.head_dim * places  # scores, weighted values
        total += experts.query_active * (query_params(own) + read)
        total += experts.key * key_params(own)
        ffns = merged if experts.routers else 1
        total += experts.ffn_active * expert_params(own, experts) * ffns
        total += experts.shared * ffn_params(own)
        routers = experts.routers * own.dim * num_experts
        if not by_segment:
            total += routers
        elif experts.routers:
            merge = experts.ffn * expert_params(own, experts)
            deciding += routers + (merge if isinstance(method, LoryMethod) else 0)
    length = _decides_every(method, rule)
    deciding = 2 * deciding if length else 0
    return DecodeCost(
        flops=round(2 * total),
        deciding_flops=deciding,
        mean_flops=round(2 * total + (Fraction(deciding, length) if length else 0)),
        cache_bytes=kv.cache_bytes(model, method, num_experts, context, bytes_per_number),
    )


def _decides_every(method: MethodSpec, rule: Literal["prompt", "segment"]) -> int:
    """Return after how many tokens the method decides again; 0 for never."""
    match method:
        case LoryMethod(routing="causal") | SegmentMoEMethod() if rule == "segment":
            return method.segment_len
        case _:
            return 0
