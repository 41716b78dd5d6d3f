"""The BAM paper's own FLOP arithmetic (arXiv:2408.08274 Tables 7 and 10), for display only.

It differs from ours: the attention term counts 2 * n_ctx * d where scores and weighted values over
all keys take 4 * n_ctx * d, the SwiGLU's elementwise work is counted (1.5 * d_ff an active expert,
which the printed totals need), and embeddings, LM head and backward pass are left out. Lory is not
in that paper: its routing and merging, once a segment, are shared out over the segment's tokens.
"""

from dataclasses import dataclass

from bam_lab.cost.layer import LayerExperts, layer_experts, layers_of
from bam_lab.cost.params import expert_params, ffn_params, key_params, query_params
from bam_lab.spec.experts import shape_of
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.model import ModelSpec


@dataclass(frozen=True)
class PrintedFlops:
    """Hold one row of Table 7: forward FLOPs of one token in one layer."""

    attention: int
    ffn: int
    total: int


def per_layer(model: ModelSpec, method: MethodSpec, num_experts: int, seq_len: int) -> PrintedFlops:
    """Return the row of Table 7 for one method; `seq_len` is the table's n_ctx (256 there)."""
    return _row(model, layer_experts(method, num_experts), num_experts, seq_len)


def printed_forward(model: ModelSpec, method: MethodSpec, num_experts: int, seq_len: int) -> int:
    """Return the forward FLOPs of one token over all layers; a dense layer counts as one."""
    layers = layers_of(method, num_experts, model.num_layers)
    model = shape_of(method, model)
    return sum(_row(model, experts, num_experts, seq_len).total for experts in layers)


def _row(model: ModelSpec, experts: LayerExperts, num_experts: int, seq_len: int) -> PrintedFlops:
    scores = 2 * seq_len * model.num_heads * model.head_dim
    attention = experts.query_active * (
        2 * query_params(model) + scores
    ) + experts.key * 2 * key_params(model)
    # The table's d_ff counts gate and up together, so 1.5 * d_ff = 3 * ffn_dim.
    width = model.ffn_dim // experts.ffn_parts
    ffn = round(experts.ffn_active * (2 * expert_params(model, experts) + 3 * width))
    ffn += experts.shared * (2 * ffn_params(model) + 3 * model.ffn_dim)
    routers = experts.routers * 2 * num_experts * model.dim
    if experts.segment_len:
        ffn += experts.ffn * 2 * expert_params(model, experts) // experts.segment_len
        routers //= experts.segment_len
    return PrintedFlops(attention, ffn, attention + ffn + routers)
