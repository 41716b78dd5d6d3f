"""Estimate the peak memory of a stage: weights, gradients, optimizer, activations, logits.

An estimate, meant to say "does not fit" before hours are spent: within a tenth of the peak measured
on five shapes from 0.6M to 18M parameters (torch 2.13 on a CPU, bf16 autocast, batch 16 x 256). The
process itself (interpreter, torch, lightning) is a measured constant.
"""

from dataclasses import dataclass

from bam_lab.cost.flops import BLOCKED_UP_TO, read_keys
from bam_lab.cost.layer import LayerExperts, layers_of
from bam_lab.cost.params import count, frozen_params
from bam_lab.spec.experts import num_sources, relu_router, shape_of
from bam_lab.spec.laws import Rule
from bam_lab.spec.methods import (
    LoryMethod,
    MethodSpec,
    SMEARMethod,
    SoftMoEMethod,
    TokenMergingMethod,
)
from bam_lab.spec.model import ModelSpec

PROCESS_BYTES = 520 * 2**20
"""Resident size of a worker with torch and lightning after its first step, without the model."""

PREPARE_BYTES = 1000 * 2**20
"""Peak of building a corpus or training a tokenizer, whatever the model."""

EVALUATION_SEQUENCES = 16
"""Sequences of one evaluation batch (`evaluate/heldout.py`)."""

LOGITS_CHUNK_TOKENS = 256
"""Tokens whose logits exist at one time (`model/losses.py`)."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Hold the parts of one stage's peak, in bytes."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    process: int

    @property
    def total(self) -> int:
        """Return the peak."""
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + self.activations
            + self.logits
            + self.process
        )


def training(
    model: ModelSpec, method: MethodSpec, num_experts: int, batch_sequences: int
) -> MemoryEstimate:
    """Estimate a training stage: float32 weights, gradients and AdamW's two moments.

    Activations are taken as float32; bf16 autocast keeps half of them but adds bf16 weights.
    """
    params = count(model, method, num_experts).total
    trained = params - frozen_params(model, method, num_experts)
    tokens = batch_sequences * model.max_seq_len
    return MemoryEstimate(
        weights=4 * params,
        gradients=4 * trained,
        optimizer=8 * trained,
        activations=tokens * sum(_saved_bytes(model, method, num_experts, "training")),
        logits=_logits_bytes(model),
        process=PROCESS_BYTES,
    )


def evaluation(model: ModelSpec, method: MethodSpec, num_experts: int) -> MemoryEstimate:
    """Estimate an evaluation stage: weights and one layer's activations at a time."""
    tokens = EVALUATION_SEQUENCES * model.max_seq_len
    return MemoryEstimate(
        weights=4 * count(model, method, num_experts).total,
        gradients=0,
        optimizer=0,
        activations=tokens * max(_saved_bytes(model, method, num_experts, "inference")),
        logits=_logits_bytes(model),
        process=PROCESS_BYTES,
    )


def upcycling(
    model: ModelSpec, method: MethodSpec, num_experts: int, dense: MethodSpec
) -> MemoryEstimate:
    """Estimate an upcycle stage: every dense model that is read and the mixture side by side."""
    sources = num_sources(method, num_experts) * count(model, dense, 1).total
    return MemoryEstimate(
        weights=4 * (sources + count(model, method, num_experts).total),
        gradients=0,
        optimizer=0,
        activations=0,
        logits=0,
        process=PROCESS_BYTES,
    )


def _saved_bytes(model: ModelSpec, method: MethodSpec, num_experts: int, rule: Rule) -> list[int]:
    """Return what autograd keeps of one token in each layer.

    All in float32 but for the attention probabilities, which stay in bf16.
    """
    model = shape_of(method, model)
    layers = layers_of(method, num_experts, model.num_layers, rule)
    return [_saved_bytes_of(model, method, experts, num_experts) for experts in layers]


def _saved_bytes_of(
    model: ModelSpec, method: MethodSpec, experts: LayerExperts, num_experts: int
) -> int:
    queries = model.num_heads * model.head_dim
    keys = model.num_kv_heads * model.head_dim
    attention = experts.query_active * 4 * queries + experts.key * 3 * keys
    ffn = _saved_of_ffn(model, method, experts, num_experts)
    kept = model.max_seq_len <= BLOCKED_UP_TO
    probabilities = model.num_heads * read_keys(experts, model.max_seq_len) if kept else 0
    plain = 4 * model.dim + attention + ffn + 4 * experts.routers * num_experts
    return 4 * plain + 2 * round(probabilities)


def _saved_of_ffn(
    model: ModelSpec, method: MethodSpec, experts: LayerExperts, num_experts: int
) -> int:
    """Count the numbers that an FFN keeps of one token; merged weights are not kept."""
    one = 4 * model.ffn_dim // experts.ffn_parts + 2 * model.dim
    match method:
        case LoryMethod() | SMEARMethod():
            return 2 * model.ffn_dim + 2 * model.dim
        case TokenMergingMethod():
            return num_experts * (model.dim + model.ffn_dim) + 4 * model.ffn_dim
        case SoftMoEMethod(slots_per_expert=slots):
            return 2 * model.dim + num_experts * slots * (2 + one // model.max_seq_len)
        case _:
            whole = 4 * model.ffn_dim + 2 * model.dim
            # Half of all ReLU gates are open before their L1 loss has closed any.
            least = experts.ffn / 2 if relu_router(method) is not None else 0
            return round(max(experts.ffn_active, least) * one) + experts.shared * whole


def _logits_bytes(model: ModelSpec) -> int:
    # Logits, their softmax and its gradient, in float32.
    return 3 * 4 * LOGITS_CHUNK_TOKENS * model.vocab_size
