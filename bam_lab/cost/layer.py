"""How many experts of each kind each layer holds, and how many of them a token uses.

Queries and output projections go together, and so do keys and values (arXiv:2408.08274 §4.1).
"""

from dataclasses import dataclass
from typing import assert_never

from bam_lab.spec.experts import routed_layers
from bam_lab.spec.methods import (
    AverageMethod,
    BAMMethod,
    BTMMethod,
    BTXMethod,
    DenseMethod,
    LoryMethod,
    LoryToSparseMethod,
    MethodSpec,
    SparseUpcyclingMethod,
)
from bam_lab.spec.routers import RouterSpec, SoftRouter


@dataclass(frozen=True)
class LayerExperts:
    """Count the modules of one layer.

    Attributes:
        ffn: FFN experts held; 1 for a dense model.
        ffn_active: FFN experts that a token goes through.
        query: modules with own query and output projections.
        query_active: those that a token goes through.
        key: modules with own key and value projections. Every token needs all of them, whatever
            its own routing, because later tokens of any routing attend to it.
        routers: linear routers.
        segment_len: tokens that share one routing decision and one FFN merged of all experts; 0
            where every token is routed and nothing is merged.
    """

    ffn: int
    ffn_active: int
    query: int
    query_active: int
    key: int
    routers: int
    segment_len: int = 0


DENSE_LAYER = LayerExperts(ffn=1, ffn_active=1, query=1, query_active=1, key=1, routers=0)


def layers_of(method: MethodSpec, num_experts: int, num_layers: int) -> tuple[LayerExperts, ...]:
    """Return the counts of every layer; a layer that stays dense has those of a dense model."""
    if isinstance(method, BTMMethod):  # whole models side by side
        return (layer_experts(method, num_experts),) * num_layers
    routed = routed_layers(method, num_layers)
    experts = layer_experts(method, num_experts)
    return tuple(experts if i in routed else DENSE_LAYER for i in range(num_layers))


def layer_experts(method: MethodSpec, num_experts: int) -> LayerExperts:
    """Return the counts for one routed layer of a method over `num_experts` experts."""
    match method:
        case DenseMethod() | AverageMethod():
            return DENSE_LAYER
        case BTMMethod():
            # A model that is chosen later needs its keys and values of every token before.
            n = num_experts
            return LayerExperts(n, n, query=n, query_active=n, key=n, routers=0)
        case LoryToSparseMethod():
            return layer_experts(method.sparse, num_experts)
        case BTXMethod() | SparseUpcyclingMethod():
            active = _active(method.ffn_router, num_experts)
            return LayerExperts(num_experts, active, query=1, query_active=1, key=1, routers=1)
        case LoryMethod():
            return LayerExperts(
                ffn=num_experts,
                ffn_active=1,
                query=1,
                query_active=1,
                key=1,
                routers=1,
                segment_len=method.segment_len,
            )
        case BAMMethod():
            return LayerExperts(
                ffn=num_experts,
                ffn_active=_active(method.ffn_router, num_experts),
                query=num_experts,
                query_active=_active(method.attention_router, num_experts),
                key=num_experts if method.kv == "per_expert" else 1,
                routers=2,
            )
        case _:
            assert_never(method)


def _active(router: RouterSpec, num_experts: int) -> int:
    return num_experts if isinstance(router, SoftRouter) else router.top_k
