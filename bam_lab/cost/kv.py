"""Count the bytes that a row's cache takes during generation."""

from bam_lab.cost.layer import layers_of
from bam_lab.cost.params import ffn_params
from bam_lab.cost.segments import places_of
from bam_lab.spec.experts import routed_layers, shape_of
from bam_lab.spec.methods import LoryMethod, MethodSpec
from bam_lab.spec.model import ModelSpec


def bytes_per_token(
    model: ModelSpec, method: MethodSpec, num_experts: int, bytes_per_number: int = 2
) -> int:
    """Return the bytes of keys and values of one token over all layers; 2 bytes each in bf16."""
    model = shape_of(method, model)
    pair = 2 * model.num_kv_heads * model.head_dim * bytes_per_number
    return pair * sum(e.key for e in layers_of(method, num_experts, model.num_layers))


def merged_bytes(model: ModelSpec, method: MethodSpec, bytes_per_number: int = 2) -> int:
    """Return the bytes of the merged FFNs that a row keeps, one in each layer; 0 but for Lory."""
    if not isinstance(method, LoryMethod):
        return 0
    return len(routed_layers(method, model.num_layers)) * ffn_params(model) * bytes_per_number


def cache_bytes(
    model: ModelSpec, method: MethodSpec, num_experts: int, context: int, bytes_per_number: int = 2
) -> int:
    """Return the bytes that a row of `context` tokens keeps: keys, values, merged FFNs."""
    tokens = places_of(method, context) * bytes_per_token(
        model, method, num_experts, bytes_per_number
    )
    return tokens + merged_bytes(model, method, bytes_per_number)
