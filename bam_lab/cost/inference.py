"""What a decoded token costs: FLOPs layer by layer, cache and weights read; arithmetic alone.

FLOPs are `decode.py`'s, in parts, and the BAM paper's own (`printed.py`), which stand beside each
other and are never added. A step reads every weight that some row uses once, whatever the number of
rows: with even and independent routing, `rows` tokens that take `active` of `held` experts reach
held (1 - (1 - active / held)^rows) of them. A Lory row reads a merged FFN of its own
(arXiv:2405.03133 §3), which other rows do not share. Norms are left out of weights, embeddings too:
one row of theirs a token.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from bam_lab.cost import kv
from bam_lab.cost.critical import critical_path
from bam_lab.cost.decode import decode
from bam_lab.cost.flops import per_token
from bam_lab.cost.layer import LayerExperts, layers_of
from bam_lab.cost.params import expert_params, ffn_params, key_params, query_params
from bam_lab.cost.printed import PrintedFlops, per_layer
from bam_lab.cost.segments import places_of
from bam_lab.errors import SpecError
from bam_lab.spec.experts import routed_layers, shape_of
from bam_lab.spec.laws import no_generation
from bam_lab.spec.methods import (
    BTMMethod,
    DenseMethod,
    LoryMethod,
    MethodSpec,
    SegmentMoEMethod,
    TokenMergingMethod,
    Unrouted,
)
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.routers import layer_router


@dataclass(frozen=True)
class LayerFlops:
    """Hold the FLOPs of one decoded token in one layer, by what it goes through."""

    attention: int
    ffn: int
    routers: int

    @property
    def total(self) -> int:
        """Return all of them."""
        return self.attention + self.ffn + self.routers


def layer_flops(
    model: ModelSpec, method: MethodSpec, num_experts: int, context: int
) -> tuple[LayerFlops, ...]:
    """Return the FLOPs of one decoded token in each layer, after a row of `context` tokens.

    Of a step that decides nothing for a segment, as `decode` counts; with the LM head
    (`head_flops`) they are its `flops`. Arguments as for `decode`.

    Raises:
        SpecError: the method cannot generate.
    """
    if reason := no_generation(method):
        raise SpecError(reason)
    own, found = shape_of(method, model), []
    read = 2 * own.num_heads * own.head_dim * places_of(method, context)
    merged = num_experts if isinstance(method, TokenMergingMethod) else 1
    decides = not isinstance(method, LoryMethod | SegmentMoEMethod)
    for experts in layers_of(method, num_experts, own.num_layers):
        attention = experts.query_active * (query_params(own) + read)
        attention += experts.key * key_params(own)
        ffn = experts.ffn_active * expert_params(own, experts) * (merged if experts.routers else 1)
        ffn += experts.shared * ffn_params(own)
        routers = experts.routers * own.dim * num_experts * decides
        found.append(LayerFlops(2 * attention, round(2 * ffn), 2 * routers))
    return tuple(found)


def head_flops(model: ModelSpec, method: MethodSpec) -> int:
    """Return the FLOPs of one token's LM heads."""
    return 2 * _heads(method) * model.dim * model.vocab_size


def prefill_flops(model: ModelSpec, method: MethodSpec, num_experts: int, prompt: int) -> int:
    """Return the model FLOPs of reading a prompt: the LM head runs for its last token alone."""
    one = per_token(model, method, num_experts, prompt).model_forward
    return prompt * one - (prompt - 1) * head_flops(model, method)


def printed_layers(
    model: ModelSpec, method: MethodSpec, num_experts: int, context: int
) -> tuple[PrintedFlops, ...]:
    """Return each layer's row of BAM's Table 7, `context` being its n_ctx."""
    own = shape_of(method, model)
    return tuple(
        per_layer(own, _at(method, own.num_layers, index), num_experts, context)
        for index in range(own.num_layers)
    )


def weight_bytes(
    model: ModelSpec,
    method: MethodSpec,
    num_experts: int,
    rows: int = 1,
    bytes_per_number: int = 2,
) -> int:
    """Return the bytes of weights that a decoding step of `rows` rows reads.

    Rounded where experts are reached by chance. Routers of segments have decided, by the prompt.
    """
    own = shape_of(method, model)
    total = reached(num_experts, _heads(method), rows) if isinstance(method, BTMMethod) else 1
    total *= own.dim * own.vocab_size
    for experts in layers_of(method, num_experts, own.num_layers):
        total += reached(experts.query, experts.query_active, rows) * query_params(own)
        total += experts.key * key_params(own)
        total += _ffns(method, experts, rows) * expert_params(own, experts)
        total += experts.shared * ffn_params(own)
        if not isinstance(method, LoryMethod | SegmentMoEMethod):
            total += experts.routers * own.dim * num_experts
    return round(total * bytes_per_number)


def reached(held: int, active: int | Fraction, rows: int) -> Fraction:
    """Return how many of `held` experts some of `rows` tokens takes, on average."""
    return held * (1 - (1 - Fraction(active) / held) ** rows)


def cache_read_bytes(
    model: ModelSpec, method: MethodSpec, num_experts: int, context: int, bytes_per_number: int = 2
) -> int:
    """Return the bytes of keys and values that one decoded token reads of its row's cache.

    All of them, but of top-k attention with keys and values per expert: those of its experts.
    """
    own = shape_of(method, model)
    pair = 2 * own.num_kv_heads * own.head_dim * bytes_per_number
    layers = layers_of(method, num_experts, own.num_layers)
    read = sum(min(e.key, e.query_active) if e.gathered else e.key for e in layers)
    return pair * read * places_of(method, context)


def inference_rows(
    model: ModelSpec,
    method: MethodSpec,
    num_experts: int,
    context: int,
    batches: tuple[int, ...] = (1,),
    bytes_per_number: int = 2,
) -> list[dict[str, Any]]:
    """Return tidy rows of kind `inference`: metric, layer, context, batch, unit, value.

    `layer` and `batch` are `*` where the number is of all layers, or hangs on no batch. Critical
    paths are of as many devices as there are experts, one each; `critical_apart` of twice as many.

    Raises:
        SpecError: the method cannot generate.
    """
    rows: list[dict[str, Any]] = []

    def add(metric: str, unit: str, value: float, layer: int | str = "*", batch: Any = "*") -> None:
        place = {"kind": "inference", "metric": metric, "layer": layer, "context": context}
        rows.append(place | {"batch": batch, "unit": unit, "value": value})

    every = layer_flops(model, method, num_experts, context)
    paper = printed_layers(model, method, num_experts, context)
    for index, (ours, theirs) in enumerate(zip(every, paper, strict=True)):
        for name in ("attention", "ffn", "routers", "total"):
            add(f"flops_{name}", "FLOPs/token", getattr(ours, name), index)
        for name in ("attention", "ffn", "total"):
            add(f"printed_{name}", "FLOPs/token", getattr(theirs, name), index)
    cost = decode(model, method, num_experts, context, "prompt", bytes_per_number)
    add("flops_total", "FLOPs/token", cost.flops)
    add("printed_total", "FLOPs/token", sum(layer.total for layer in paper))
    add("prefill_flops", "FLOPs", prefill_flops(model, method, num_experts, context))
    a_token = kv.bytes_per_token(model, method, num_experts, bytes_per_number)
    add("kv_bytes_per_token", "bytes", a_token)
    add("cache_bytes", "bytes", cost.cache_bytes)
    read = cache_read_bytes(model, method, num_experts, context, bytes_per_number)
    add("cache_read_bytes", "bytes/token", read)
    for batch in batches:
        weights = weight_bytes(model, method, num_experts, batch, bytes_per_number)
        add("weights_read", "bytes/token", weights / batch, batch=batch)
        for apart, name in ((False, "critical"), (True, "critical_apart")):
            path = critical_path(model, method, num_experts, context, num_experts, batch, apart)
            add(f"{name}_flops", "FLOPs/step", path.flops, batch=batch)
            add(f"{name}_weights", "bytes/step", path.weights * bytes_per_number, batch=batch)
        add("exchanges", "", path.exchanges, batch=batch)
        add("sent_bytes", "bytes/step", path.sent_bytes, batch=batch)
    return rows


def _heads(method: MethodSpec) -> int:
    return method.top_k if isinstance(method, BTMMethod) else 1


def _ffns(method: MethodSpec, experts: LayerExperts, rows: int) -> int | Fraction:
    """Return how many FFNs of an expert's size a step reads."""
    match method:
        case LoryMethod() if experts.segment_len:
            return rows
        case TokenMergingMethod() if experts.routers:
            return experts.ffn
        case _:
            return reached(experts.ffn, experts.ffn_active, rows)


def _at(method: MethodSpec, num_layers: int, index: int) -> MethodSpec:
    """Return the method whose every layer is like one layer of `method`."""
    if isinstance(method, Unrouted):
        return method
    routed = routed_layers(method, num_layers)
    if index not in routed:
        return DenseMethod(method="dense")
    router = getattr(method, "ffn_router", None)
    if router is None:
        return method
    return method.model_copy(update={"ffn_router": layer_router(router, index == routed[0])})
