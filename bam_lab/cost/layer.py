"""How many experts of each kind each layer holds, and how many of them a token uses.

Queries and output projections go together, and so do keys and values (arXiv:2408.08274 §4.1).
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, assert_never

from bam_lab.spec.experts import ffn_parts, has_shared, routed_layers
from bam_lab.spec.laws import Rule
from bam_lab.spec.methods import (
    AverageMethod,
    BAMMethod,
    BTMMethod,
    BTXMethod,
    DenseMethod,
    LoryMethod,
    LoryToSparseMethod,
    MethodSpec,
    SegmentMoEMethod,
    SMEARMethod,
    SoftMoEMethod,
    SparseUpcyclingMethod,
    TokenMergingMethod,
)
from bam_lab.spec.routers import (
    ExpertChoiceRouter,
    HashRouter,
    ReLURouter,
    RouterSpec,
    SampleRouter,
    SoftRouter,
    TopKRouter,
    layer_router,
)

Part = Literal["ffn", "query", "key"]


@dataclass(frozen=True)
class LayerExperts:
    """Count the modules of one layer.

    Attributes:
        ffn: FFN experts held; 1 for a dense model.
        ffn_active: FFN experts that a token goes through, on average where experts choose; 1
            where all are merged into one.
        query: modules with own query and output projections.
        query_active: those that a token goes through.
        key: modules with own key and value projections. Every token needs all of them, whatever
            its own routing, because later tokens of any routing attend to it.
        gathered: whether attention takes each expert's own queries apart (top-k with keys and
            values per expert).
        routers: linear routers; a slot of each expert counts as one.
        segment_len: tokens that share one routing decision and one FFN merged of all experts; 0
            where every token is routed and nothing is merged.
        ffn_parts: into how many experts one dense FFN is cut; each has ffn_dim / that.
        shared: FFNs, each whole, that every token goes through beside the experts.
        frozen: modules of which no copy trains; what is below them still needs their gradient.
    """

    ffn: int
    ffn_active: int | Fraction
    query: int
    query_active: int
    key: int
    routers: int
    segment_len: int = 0
    gathered: bool = False
    ffn_parts: int = 1
    shared: int = 0
    frozen: frozenset[Part] = frozenset()


DENSE_LAYER = LayerExperts(ffn=1, ffn_active=1, query=1, query_active=1, key=1, routers=0)


def layers_of(
    method: MethodSpec, num_experts: int, num_layers: int, rule: Rule = "inference"
) -> tuple[LayerExperts, ...]:
    """Return the counts of every layer; a layer that stays dense has those of a dense model.

    Where `rule` is training, some routers send a token to another number of experts.
    """
    if isinstance(method, BTMMethod):  # whole models side by side
        return (layer_experts(method, num_experts),) * num_layers
    routed = routed_layers(method, num_layers)
    return tuple(
        layer_experts(method, num_experts, rule, i == routed[0]) if i in routed else DENSE_LAYER
        for i in range(num_layers)
    )


def layer_experts(
    method: MethodSpec, num_experts: int, rule: Rule = "inference", is_first: bool = False
) -> LayerExperts:
    """Return the counts for one routed layer of a method over `num_experts` experts.

    `is_first` is for routers that differ in the first routed layer.
    """
    match method:
        case DenseMethod() | AverageMethod():
            return DENSE_LAYER
        case BTMMethod():
            # A model that is chosen later needs its keys and values of every token before.
            n = num_experts
            return LayerExperts(n, n, query=n, query_active=n, key=n, routers=0)
        case LoryToSparseMethod():
            return layer_experts(method.sparse, num_experts, rule, is_first)
        case BTXMethod() | SparseUpcyclingMethod() | SegmentMoEMethod():
            router = layer_router(method.ffn_router, is_first)
            return LayerExperts(
                ffn=num_experts,
                ffn_active=_active(router, num_experts, rule),
                query=1,
                query_active=1,
                key=1,
                routers=_routers(router),
                ffn_parts=ffn_parts(method),
                shared=int(has_shared(method)),
                frozen=_frozen(method),
            )
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
        case SMEARMethod() | TokenMergingMethod():
            return LayerExperts(num_experts, 1, query=1, query_active=1, key=1, routers=1)
        case SoftMoEMethod(slots_per_expert=slots):
            n = num_experts
            return LayerExperts(n, n, query=1, query_active=1, key=1, routers=slots)
        case BAMMethod():
            router = layer_router(method.ffn_router, is_first)
            return LayerExperts(
                ffn=num_experts,
                ffn_active=_active(router, num_experts, rule),
                query=num_experts,
                query_active=_active_attention(method.attention_router, num_experts),
                key=num_experts if method.kv == "per_expert" else 1,
                routers=1 + _routers(router),
                gathered=method.kv == "per_expert" and method.attention_router.select == "top_k",
                frozen=_frozen(method),
            )
        case _:
            assert_never(method)


def _frozen(method: MethodSpec) -> frozenset[Part]:
    """Return the modules of which `frozen_experts` holds every one."""
    match method:
        case BTXMethod(frozen_experts=True):
            return frozenset({"ffn"})
        case BAMMethod(frozen_experts=True, kv="shared"):
            return frozenset({"ffn", "query"})
        case BAMMethod(frozen_experts=True):
            return frozenset({"ffn", "query", "key"})
        case _:
            return frozenset()


def _active(router: RouterSpec, num_experts: int, rule: Rule) -> int | Fraction:
    """Return how many experts a token goes through, on average.

    Under a capacity limit as if it dropped nothing, since what it drops is the text's doing. Of
    ReLU gates as many as they are driven to, although training begins with about half. Where
    experts choose as many as their capacity, before it is rounded up to whole tokens.
    """
    match router:
        case SoftRouter():
            return num_experts
        case TopKRouter():
            return router.top_k
        case ReLURouter():
            return router.active_experts
        case SampleRouter() | HashRouter():
            return 1
        case ExpertChoiceRouter() if rule == "inference":
            return router.inference_top_k
        case ExpertChoiceRouter():
            return min(Fraction(router.capacity_factor), Fraction(num_experts))
        case _:
            assert_never(router)


def _active_attention(router: SoftRouter | TopKRouter, num_experts: int) -> int:
    return num_experts if isinstance(router, SoftRouter) else router.top_k


def _routers(router: RouterSpec) -> int:
    return 0 if isinstance(router, HashRouter) else 1
