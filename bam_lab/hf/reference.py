"""transformers' own models at one of our shapes, at random: what ours are timed beside."""

from typing import Any

from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from bam_lab.spec.model import ModelSpec


def llama(spec: ModelSpec) -> nn.Module:
    """Return a Llama: our dense model with serial blocks."""
    return LlamaForCausalLM(LlamaConfig(**_shape(spec)))


def mixtral(spec: ModelSpec, num_experts: int, top_k: int, implementation: str) -> nn.Module:
    """Return a Mixtral: BTX top-k with renormalised gates.

    Args:
        spec: our shape.
        num_experts: experts of every layer.
        top_k: those that a token goes to.
        implementation: how transformers runs the experts: `eager`, `batched_mm`, `grouped_mm`.
    """
    config = MixtralConfig(**_shape(spec), num_local_experts=num_experts, num_experts_per_tok=top_k)
    config._experts_implementation = implementation
    return MixtralForCausalLM(config)


def _shape(spec: ModelSpec) -> dict[str, Any]:
    assert spec.block == "serial" and spec.positions == "rope" and spec.norm == "rms"
    return {
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.dim,
        "intermediate_size": spec.ffn_dim,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "rms_norm_eps": spec.norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": spec.rope_theta},
        "max_position_embeddings": spec.max_seq_len,
        "tie_word_embeddings": spec.tie_embeddings,
        "attn_implementation": "sdpa",
        "use_cache": False,
    }
