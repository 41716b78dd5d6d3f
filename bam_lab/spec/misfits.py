"""Settings of a method that a model's shape rules out."""

from collections.abc import Iterator

from bam_lab.spec.experts import has_bias, is_mixture, routed_layers
from bam_lab.spec.layouts import copy_misfits, layout_misfits
from bam_lab.spec.methods import (
    BAMMethod,
    BTXMethod,
    LoryMethod,
    LoryToSparseMethod,
    MethodSpec,
    SegmentMoEMethod,
    SparseUpcyclingMethod,
)
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.routers import SampleRouter
from bam_lab.spec.segment_rules import segment_misfits


def misfits(method: MethodSpec, model: ModelSpec, num_experts: int) -> Iterator[tuple[str, str]]:
    """Yield each setting that the model's shape rules out, and what must hold."""
    if model.activation == "gelu" and is_mixture(method):
        yield (
            "method",
            f"must be dense where the model's activation is gelu, got {method.method}: experts "
            "are SwiGLUs. Take a model with activation: swiglu.",
        )
    if isinstance(method, SparseUpcyclingMethod) and method.layers != "all":
        routed = routed_layers(method, model.num_layers)
        if not routed or min(routed) <= 0:
            yield (
                "layers",
                f"must leave a dense and a routed layer of {model.num_layers}, got "
                f"{method.layers}. Use all or fewer.",
            )
    yield from _router_misfits(method, model)
    if isinstance(method, LoryToSparseMethod):
        yield from misfits(method.lory, model, num_experts)
    if isinstance(method, BTXMethod | BAMMethod) and method.branch is not None:
        sizes = model.dim, model.ffn_dim, model.num_kv_heads * model.head_dim
        if method.branch.lora.rank >= min(sizes):
            yield (
                "branch",
                f"must have a lora.rank below {min(sizes)}, the smallest side of a matrix, got "
                f"{method.branch.lora.rank}. Lower it.",
            )
    if isinstance(method, BTXMethod):
        yield from layout_misfits(method, model, num_experts)
    if isinstance(method, SparseUpcyclingMethod):
        yield from copy_misfits(method, model)
    if isinstance(method, LoryMethod | SegmentMoEMethod):
        yield from segment_misfits(method, model)


def _router_misfits(method: MethodSpec, model: ModelSpec) -> Iterator[tuple[str, str]]:
    """Yield what a router asks for where nothing does it."""
    router = getattr(method, "ffn_router", None)
    few = len(routed_layers(method, model.num_layers)) < 2
    if isinstance(router, SampleRouter) and router.soft_first_layer and few:
        yield (
            "ffn_router",
            "must have soft_first_layer: false where one layer alone is routed, got true: nothing "
            "would be sampled.",
        )
    if has_bias(method) and not isinstance(method, BTXMethod | BAMMethod | SparseUpcyclingMethod):
        yield (
            "ffn_router",
            f"must have no bias_rate with method: {method.method}, which moves no bias. Remove it.",
        )
    attention = getattr(method, "attention_router", None)
    for key in ("capacity_factor", "bias_rate"):
        if getattr(attention, key, None) is not None:
            yield (
                "attention_router",
                f"must have no {key}: attention experts have no such thing. Remove it.",
            )
