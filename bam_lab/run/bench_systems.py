"""What `bam-lab bench` measures: the systems, and the shapes they are measured at.

Blocks are serial, as in transformers' Llama and Mixtral, so that these have the same shape. Lory's
published slow-down (arXiv:2405.03133 Table 3) is at segments of 256 tokens, so its rows and the
dense row they are compared with have longer sequences, and at 20m more of them: what a step does
once an expert (casts, sums of gradients) is shared out over its segments, 4,096 in the paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from bam_lab.spec.experts import num_experts_of
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.model import ModelSpec

EXPERTS = 4
"""Dense experts that a system mixes, where its name says nothing else."""
LORY_SEGMENT = 256
PROMPT, NEW = 16, 16
"""Tokens of a prompt, and those that decoding adds."""
DECODED_ROWS = 4

_TOP_1 = {"score": "softmax", "select": "top_k", "top_k": 1, "renormalize": False}
_TOP_2 = {"score": "softmax", "select": "top_k", "top_k": 2, "renormalize": False}
_RENORMALIZED = {**_TOP_2, "renormalize": True}
_SOFT = {"score": "softmax", "select": "all"}
_SAMPLE = {
    "score": "softmax",
    "select": "sample",
    "estimator": "soft_value",
    "soft_first_layer": True,
}
_CHOICE = {
    "score": "softmax",
    "select": "expert_choice",
    "capacity_factor": 2.0,
    "inference_top_k": 2,
}


def _bam(kv: str, router: dict[str, Any]) -> dict[str, Any]:
    return {"method": "bam", "kv": kv, "attention_router": router, "ffn_router": _TOP_1}


def _btx(router: dict[str, Any]) -> dict[str, Any]:
    return {"method": "btx", "ffn_router": router}


SYSTEMS: dict[str, dict[str, Any]] = {
    "dense": {"method": "dense"},
    "btx top-1": _btx(_TOP_1),
    "btx top-2": _btx(_RENORMALIZED),
    "btx soft": _btx(_SOFT),
    "btx top-1, capacity": _btx({**_TOP_1, "capacity_factor": 1.5}),
    "btx sample": _btx(_SAMPLE),
    "btx hash": _btx({"select": "hash", "kind": "random"}),
    "btx straight-through": _btx(
        {**_SAMPLE, "estimator": "straight_through", "soft_first_layer": False}
    ),
    "btx top-2, frozen": {**_btx(_RENORMALIZED), "frozen_experts": True},
    "btx top-4, split in 8": {
        **_btx({**_RENORMALIZED, "top_k": 4}),
        "expert_layout": "split",
        "chunks": 2,
    },
    "btx relu": _btx({"score": "relu", "select": "all", "active_experts": 2}),
    "btx top-2, shared expert": {**_btx(_RENORMALIZED), "shared_expert": True},
    "bam soft, kv shared": _bam("shared", _SOFT),
    "bam soft, kv per expert": _bam("per_expert", _SOFT),
    "bam top-2, kv shared": _bam("shared", _TOP_2),
    "bam top-2, kv per expert": _bam("per_expert", _TOP_2),
    "sparse upcycling top-2": {
        "method": "sparse_upcycling",
        "num_experts": EXPERTS,
        "layers": "every_other",
        "ffn_router": _TOP_2,
    },
    "sparse upcycling expert choice": {
        "method": "sparse_upcycling",
        "num_experts": EXPERTS,
        "layers": "every_other",
        "ffn_router": _CHOICE,
    },
    "lory": {"method": "lory", "segment_len": 32, "first_segment": "own_mean"},
    "lory, bos": {"method": "lory", "segment_len": 32, "first_segment": "bos"},
    "lory, prefix": {
        "method": "lory",
        "segment_len": 32,
        "first_segment": "own_mean",
        "routing": "prefix",
    },
    "segment expert choice": {
        "method": "segment_moe",
        "segment_len": 32,
        "first_segment": "own_mean",
        "ffn_router": {**_CHOICE, "capacity_factor": 1.0, "inference_top_k": 1},
    },
    "segment top-2": {
        "method": "segment_moe",
        "segment_len": 32,
        "first_segment": "own_mean",
        "ffn_router": _RENORMALIZED,
    },
    "token merging": {"method": "token_merging"},
    "smear": {"method": "smear"},
    "soft moe": {"method": "soft_moe", "slots_per_expert": 32},
}
LORY: dict[str, dict[str, Any]] = {
    f"lory, {count} experts of {LORY_SEGMENT}": {
        "method": "lory",
        "segment_len": LORY_SEGMENT,
        "first_segment": "own_mean",
        "num_experts": count,
    }
    for count in (8, 32)
}
DENSE_ACTIVE, DENSE_LONG = "dense, active as btx top-2", "dense, long sequences"
MIXTRAL = ("eager", "batched_mm", "grouped_mm")
"""The ways in which transformers' Mixtral can run its experts on a CPU."""


@dataclass(frozen=True)
class Shape:
    """Hold a shape, the batch of one step, and the one of the rows with long sequences."""

    name: str
    model: ModelSpec
    batch: int
    long_seq_len: int
    long_batch: int


def _model(**sizes: Any) -> ModelSpec:
    return ModelSpec(schema=1, block="serial", tie_embeddings=False, **sizes)


SHAPES: dict[str, Shape] = {
    "nano": Shape(
        "nano",
        _model(
            vocab_size=4096,
            dim=64,
            num_layers=2,
            num_heads=2,
            num_kv_heads=2,
            head_dim=32,
            ffn_dim=128,
            max_seq_len=128,
        ),
        batch=32,
        long_seq_len=1024,
        long_batch=4,
    ),
    "20m": Shape(
        "20m",
        _model(
            vocab_size=8192,
            dim=384,
            num_layers=8,
            num_heads=6,
            num_kv_heads=6,
            head_dim=64,
            ffn_dim=1024,
            max_seq_len=256,
        ),
        batch=4,
        long_seq_len=1024,
        long_batch=8,
    ),
}


@dataclass(frozen=True)
class Contender:
    """Hold one row: a system of ours, or one of transformers' at the same shape.

    Attributes:
        implementation: of transformers' experts; empty for its Llama and for ours.
    """

    name: str
    library: Literal["bam-lab", "transformers"]
    model: ModelSpec
    method: MethodSpec
    num_experts: int
    batch: int
    implementation: str = ""


def contenders(shape: Shape, transformers: bool) -> list[Contender]:
    """Return every row at a shape; those that are compared stand first, so that they alternate."""
    ours = {name: _ours(shape, name, raw) for name, raw in SYSTEMS.items()}
    wide = {"method": "dense", "start": "scratch", "ffn_dim": 2 * shape.model.ffn_dim}
    compared = [ours.pop("btx top-2"), _ours(shape, DENSE_ACTIVE, wide)]
    compared.append(ours.pop("bam soft, kv shared"))
    if transformers:
        mixtral = compared[0]
        compared += [_theirs("Mixtral", mixtral, way) for way in MIXTRAL]
        compared += [_theirs("Llama", ours["dense"], "")]
    compared.append(ours.pop("dense"))
    long = Shape(
        shape.name,
        shape.model.model_copy(update={"max_seq_len": shape.long_seq_len}),
        shape.long_batch,
        shape.long_seq_len,
        shape.long_batch,
    )
    lory = [_ours(long, name, raw) for name, raw in LORY.items()]
    return [*compared, *ours.values(), _ours(long, DENSE_LONG, SYSTEMS["dense"]), *lory]


def _ours(shape: Shape, name: str, raw: dict[str, Any]) -> Contender:
    adapter: TypeAdapter[MethodSpec] = TypeAdapter(MethodSpec)
    method = adapter.validate_python(raw)
    experts = num_experts_of(method, EXPERTS)
    return Contender(name, "bam-lab", shape.model, method, experts, shape.batch)


def _theirs(name: str, like: Contender, way: str) -> Contender:
    label = f"HF {name}, {way}" if way else f"HF {name}"
    return Contender(
        label, "transformers", like.model, like.method, like.num_experts, like.batch, way
    )


def named(names: Sequence[str], rows: Sequence[Contender]) -> list[Contender]:
    """Return the rows that were asked for; all where none was."""
    return [row for row in rows if not names or row.name in names]
