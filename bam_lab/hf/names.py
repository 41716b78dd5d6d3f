"""Hugging Face families: how their tensors are named and laid out, each in one two-way table.

`{i}` stands for a layer. Tensors differ from ours in two ways only: Cohere and GPT-J rotate
neighbouring pairs of a head's dimensions where we rotate its halves, so rows of their query and key
projections change places; and stacked experts hold gate and up joined. Not covered: biases (GPT-J,
Mistral and Llama with `attention_bias`), norms of queries and keys (OLMoE, Cohere's larger models),
GPT-J's heads that are rotated in part.

Shapes: H heads, C head_dim, D dim, E experts, F ffn_dim.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bam_lab.spec.model import ModelSpec

State = Mapping[str, Tensor]
Own = str | tuple[str, str]
Names = dict[Own, str]


@dataclass(frozen=True)
class Family:
    """Describe the tensors of one family.

    Attributes:
        names: our name -> theirs, one to one; for a joined tensor, both of ours -> theirs.
        neighbours: whether rotary positions turn neighbouring dimensions, not halves.
    """

    names: Names
    neighbours: bool = False


_OUTSIDE: Names = {
    "embedding": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "lm_head": "lm_head.weight",
}
_ATTENTION: Names = {
    "layers.{i}.attention.query": "model.layers.{i}.self_attn.q_proj.weight",
    "layers.{i}.attention.key": "model.layers.{i}.self_attn.k_proj.weight",
    "layers.{i}.attention.value": "model.layers.{i}.self_attn.v_proj.weight",
    "layers.{i}.attention.output": "model.layers.{i}.self_attn.o_proj.weight",
}
_SERIAL_NORMS: Names = {
    "layers.{i}.attention_norm": "model.layers.{i}.input_layernorm.weight",
    "layers.{i}.ffn_norm": "model.layers.{i}.post_attention_layernorm.weight",
}
_PARALLEL_NORM: Names = {"layers.{i}.norm": "model.layers.{i}.input_layernorm.weight"}
_FFN: Names = {
    "layers.{i}.ffn.gate": "model.layers.{i}.mlp.gate_proj.weight",
    "layers.{i}.ffn.up": "model.layers.{i}.mlp.up_proj.weight",
    "layers.{i}.ffn.down": "model.layers.{i}.mlp.down_proj.weight",
}
_EXPERTS: Names = {
    "layers.{i}.ffn.router": "model.layers.{i}.mlp.gate.weight",
    ("layers.{i}.ffn.gate", "layers.{i}.ffn.up"): "model.layers.{i}.mlp.experts.gate_up_proj",
    "layers.{i}.ffn.down": "model.layers.{i}.mlp.experts.down_proj",
}

LLAMA = Family({**_OUTSIDE, **_ATTENTION, **_SERIAL_NORMS, **_FFN})
MISTRAL = LLAMA
COHERE = Family({**_OUTSIDE, **_ATTENTION, **_PARALLEL_NORM, **_FFN}, neighbours=True)
MIXTRAL = Family({**_OUTSIDE, **_ATTENTION, **_SERIAL_NORMS, **_EXPERTS})
OLMOE = MIXTRAL
GPT_J = Family(
    {
        "embedding": "transformer.wte.weight",
        "final_norm": "transformer.ln_f.weight",
        "lm_head": "lm_head.weight",
        "layers.{i}.norm": "transformer.h.{i}.ln_1.weight",
        "layers.{i}.attention.query": "transformer.h.{i}.attn.q_proj.weight",
        "layers.{i}.attention.key": "transformer.h.{i}.attn.k_proj.weight",
        "layers.{i}.attention.value": "transformer.h.{i}.attn.v_proj.weight",
        "layers.{i}.attention.output": "transformer.h.{i}.attn.out_proj.weight",
        "layers.{i}.ffn.up": "transformer.h.{i}.mlp.fc_in.weight",
        "layers.{i}.ffn.down": "transformer.h.{i}.mlp.fc_out.weight",
    },
    neighbours=True,
)


def from_hf(state: State, family: Family, spec: ModelSpec) -> dict[str, Tensor]:
    """Return our tensors of theirs (weights, or gradients of them); a tied LM head is left out."""
    found: dict[str, Tensor] = {}
    for ours, theirs in _each(family, spec):
        tensor = state[theirs]
        if isinstance(ours, tuple):
            found |= zip(ours, tensor.chunk(2, dim=1), strict=True)  # E 2F D
        elif family.neighbours and _is_rotated(ours):
            pairs = tensor.view(-1, spec.head_dim // 2, 2, spec.dim)  # H C/2 2 D
            found[ours] = pairs.transpose(1, 2).reshape(tensor.shape)
        else:
            found[ours] = tensor
    return found


def to_hf(state: State, family: Family, spec: ModelSpec) -> dict[str, Tensor]:
    """Return their tensors of ours, the inverse of `from_hf`."""
    found: dict[str, Tensor] = {}
    for ours, theirs in _each(family, spec):
        if isinstance(ours, tuple):
            found[theirs] = torch.cat([state[name] for name in ours], dim=1)  # E 2F D
        elif family.neighbours and _is_rotated(ours):
            halves = state[ours].view(-1, 2, spec.head_dim // 2, spec.dim)  # H 2 C/2 D
            found[theirs] = halves.transpose(1, 2).reshape(state[ours].shape)
        else:
            found[theirs] = state[ours]
    return found


def _each(family: Family, spec: ModelSpec) -> list[tuple[Own, str]]:
    """Return the table's rows for a model of shape `spec`, layer by layer."""
    rows: list[tuple[Own, str]] = []
    for ours, theirs in family.names.items():
        if ours == "lm_head" and spec.tie_embeddings:
            continue
        for i in range(spec.num_layers if "{i}" in theirs else 1):
            own = ours.format(i=i) if isinstance(ours, str) else (_at(ours[0], i), _at(ours[1], i))
            rows.append((own, _at(theirs, i)))
    return rows


def _at(name: str, layer: int) -> str:
    return name.format(i=layer)


def _is_rotated(name: str) -> bool:
    return name.endswith(("attention.query", "attention.key"))
