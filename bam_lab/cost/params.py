"""Count parameters: all of them, those a token uses, and as the BAM paper counts the latter.

arXiv:2408.08274 Table 9. Two departures from the printed table, both shown beside it: the paper
leaves one of the two routers out of the active count, and for KV sharing also the shared keys and
values (612,400,128 printed; 624,983,040 with them).
"""

from dataclasses import dataclass
from typing import Literal

from bam_lab.cost.layer import LayerExperts, layers_of
from bam_lab.spec.experts import shape_of
from bam_lab.spec.methods import BTMMethod, DenseMethod, MethodSpec
from bam_lab.spec.model import ModelSpec


@dataclass(frozen=True)
class ParamCount:
    """Hold the three counts of one model.

    Attributes:
        total: every number, trained or frozen.
        active: those one token uses, embeddings, head and all routers included.
        active_printed: the same with one router a block, as arXiv:2408.08274 Table 9 does.
    """

    total: int
    active: int
    active_printed: int


def count(model: ModelSpec, method: MethodSpec, num_experts: int) -> ParamCount:
    """Count the parameters of `method` over `num_experts` experts in a model of shape `model`.

    Branch-Train-Merge runs every model on every token, but only the LM heads that it mixes.
    """
    if isinstance(method, BTMMethod):
        one = count(model, DenseMethod(method="dense"), 1).total
        active = num_experts * one - (num_experts - method.top_k) * head_params(model)
        return ParamCount(num_experts * one, active, active)
    model = shape_of(method, model)
    layers = layers_of(method, num_experts, model.num_layers)
    router = model.dim * num_experts
    outside = embedding_params(model) + head_params(model) + model.dim
    active = outside + sum(_active_layer(model, experts, router) for experts in layers)
    left_out = sum(router * max(experts.routers - 1, 0) for experts in layers)
    return ParamCount(
        total=outside + sum(_total_layer(model, experts, router) for experts in layers),
        active=active,
        active_printed=active - left_out,
    )


def dense_ffn_dim(
    model: ModelSpec, method: MethodSpec, num_experts: int, params: Literal["active", "total"]
) -> int:
    """Return the `ffn_dim` of the dense model whose size is nearest to that of `method`.

    At least 1, where even that is larger.
    """
    wanted = count(model, method, num_experts)
    target = wanted.active if params == "active" else wanted.total
    dense = DenseMethod(method="dense")
    one, two = (count(model.model_copy(update={"ffn_dim": f}), dense, 1).total for f in (1, 2))
    return max(round((target - one) / (two - one)) + 1, 1)


def frozen_params(model: ModelSpec, method: MethodSpec, num_experts: int) -> int:
    """Count the parameters that the mixture phase does not train."""
    return sum(
        experts.ffn * expert_params(model, experts) * ("ffn" in experts.frozen)
        + experts.query * query_params(model) * ("query" in experts.frozen)
        + experts.key * key_params(model) * ("key" in experts.frozen)
        for experts in layers_of(method, num_experts, model.num_layers)
    )


def embedding_params(model: ModelSpec) -> int:
    """Count the input embedding, with that of the positions where these are learned."""
    positions = model.max_seq_len if model.positions == "learned" else 0
    return (model.vocab_size + positions) * model.dim


def head_params(model: ModelSpec) -> int:
    """Count the LM head: nothing of its own when it is tied to the embedding."""
    return 0 if model.tie_embeddings else model.vocab_size * model.dim


def query_params(model: ModelSpec) -> int:
    """Count one query projection with its output projection."""
    return 2 * model.dim * model.num_heads * model.head_dim


def key_params(model: ModelSpec) -> int:
    """Count one key projection with its value projection."""
    return 2 * model.dim * model.num_kv_heads * model.head_dim


def ffn_params(model: ModelSpec) -> int:
    """Count one FFN: up and down projections, and SwiGLU's gate."""
    return (3 if model.activation == "swiglu" else 2) * model.dim * model.ffn_dim


def expert_params(model: ModelSpec, experts: LayerExperts) -> int:
    """Count one FFN expert, which may be a part of a dense FFN."""
    return ffn_params(model) // experts.ffn_parts


def _norm_params(model: ModelSpec) -> int:
    return model.dim * (1 if model.block == "parallel" else 2)


def _total_layer(model: ModelSpec, experts: LayerExperts, router: int) -> int:
    return (
        _norm_params(model)
        + experts.query * query_params(model)
        + experts.key * key_params(model)
        + experts.ffn * expert_params(model, experts)
        + experts.shared * ffn_params(model)
        + experts.routers * router
    )


def _active_layer(model: ModelSpec, experts: LayerExperts, router: int) -> int:
    return (
        _norm_params(model)
        + experts.query_active * query_params(model)
        + experts.key * key_params(model)
        + round(experts.ffn_active * expert_params(model, experts))
        + experts.shared * ffn_params(model)
        + experts.routers * router
    )
