"""One block: attention and FFN on the residual stream, in parallel or one after the other.

`parallel` (arXiv:2204.02311 §2; BAM's block, arXiv:2408.08274 §3.1): y = x + Attn(norm x) +
FFN(norm x), one norm. `serial` (Llama): two norms. The residual stream stays float32.

Shapes: B batch, T tokens, D dim.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bam_lab.model.attention import Attention, AttentionExperts
from bam_lab.model.context import Context
from bam_lab.model.ffn import FFN, GELUFFN, FFNExperts
from bam_lab.model.layers import norm, to_compute
from bam_lab.model.lory import MergedFFN
from bam_lab.model.router import Routing
from bam_lab.model.segment_moe import SegmentMoE
from bam_lab.model.smear import SequenceMergedFFN
from bam_lab.model.soft_moe import SoftMoE
from bam_lab.model.token_merging import TokenMergedFFN
from bam_lab.spec.experts import ffn_parts, has_shared, routed_layers
from bam_lab.spec.methods import (
    BAMMethod,
    LoryMethod,
    MethodSpec,
    SegmentMoEMethod,
    SMEARMethod,
    SoftMoEMethod,
    TokenMergingMethod,
    Unrouted,
)
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.routers import layer_router


class LayerRouting(NamedTuple):
    """Hold the routings of one layer; None where the layer has no such router."""

    attention: Routing | None
    ffn: Routing | None


class Block(nn.Module):
    """Hold one layer: its norms, attention and FFN, dense or experts as the method says."""

    attention: Attention | AttentionExperts
    ffn: FFN | GELUFFN | FFNExperts | MergedFFN | TokenMergedFFN | SequenceMergedFFN | SoftMoE

    def __init__(self, spec: ModelSpec, method: MethodSpec, num_experts: int, index: int):
        """Build layer `index` as `method` asks for it."""
        super().__init__()
        self.spec, self.parallel = spec, spec.block == "parallel"
        if self.parallel:
            self.norm = nn.Parameter(torch.empty(spec.dim))
        else:
            self.attention_norm = nn.Parameter(torch.empty(spec.dim))
            self.ffn_norm = nn.Parameter(torch.empty(spec.dim))
        if isinstance(method, BAMMethod):
            self.attention = AttentionExperts(spec, method.attention_router, method.kv, num_experts)
        else:
            self.attention = Attention(spec)
        routed = routed_layers(method, spec.num_layers)
        if isinstance(method, Unrouted) or index not in routed:
            self.ffn = GELUFFN(spec) if spec.activation == "gelu" else FFN(spec)
        elif isinstance(method, LoryMethod):
            self.ffn = MergedFFN(spec, method, num_experts)
        elif isinstance(method, SegmentMoEMethod):
            self.ffn = SegmentMoE(spec, method, num_experts)
        elif isinstance(method, TokenMergingMethod):
            self.ffn = TokenMergedFFN(spec, num_experts)
        elif isinstance(method, SMEARMethod):
            self.ffn = SequenceMergedFFN(spec, num_experts)
        elif isinstance(method, SoftMoEMethod):
            self.ffn = SoftMoE(spec, method, num_experts)
        else:
            width = spec.ffn_dim // ffn_parts(method)
            own = spec.model_copy(update={"ffn_dim": width})
            router = layer_router(method.ffn_router, index == routed[0])
            shared = FFN(spec) if has_shared(method) else None
            self.ffn = FFNExperts(own, router, num_experts, shared)

    def forward(
        self, x: Float[Tensor, "B T D"], context: Context
    ) -> tuple[Float[Tensor, "B T D"], LayerRouting]:
        """Add this layer's contribution to the residual stream `x`."""
        if self.parallel:
            normed = norm(x, self.norm, self.spec)
            compute = to_compute(normed)
            attended, attention = self.attention(compute, normed, context)
            fed, ffn = self.ffn(compute, normed, context)
            return x + attended + fed, LayerRouting(attention, ffn)
        normed = norm(x, self.attention_norm, self.spec)
        attended, attention = self.attention(to_compute(normed), normed, context)
        x = x + attended
        normed = norm(x, self.ffn_norm, self.spec)
        fed, ffn = self.ffn(to_compute(normed), normed, context)
        return x + fed, LayerRouting(attention, ffn)
