"""Count the bytes that one cached token takes during generation."""

from bam_lab.cost.layer import layers_of
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.model import ModelSpec


def bytes_per_token(
    model: ModelSpec, method: MethodSpec, num_experts: int, bytes_per_number: int = 2
) -> int:
    """Return the bytes of keys and values of one token over all layers; 2 bytes each in bf16."""
    pair = 2 * model.num_kv_heads * model.head_dim * bytes_per_number
    return pair * sum(e.key for e in layers_of(method, num_experts, model.num_layers))
