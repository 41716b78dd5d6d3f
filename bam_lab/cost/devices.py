"""What a stage takes on devices of a known kind: hours, tokens a second, memory, bytes sent.

By the data sheets' peak and an MFU that the user states: model FLOPs (`cost/flops.py`) over what
the devices could do. Everything is sharded over all devices (ZeRO 3, arXiv:1910.02054): weights,
gradients and AdamW's moments in float32; a batch goes through in as many passes as the memory
needs, and no activation is computed twice.
"""

from dataclasses import dataclass

from bam_lab.cost import communication, memory
from bam_lab.cost.flops import per_token
from bam_lab.cost.params import count, embedding_params, head_params
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.model import ModelSpec


@dataclass(frozen=True)
class Device:
    """Describe one accelerator.

    Attributes:
        peak_flops: dense bf16 FLOPs a second, float32 accumulation, no sparsity.
        memory_bytes: as sold.
    """

    peak_flops: float
    memory_bytes: float


# NVIDIA's, AMD's and Google's data sheets: A100, H100 SXM, H200 SXM, DGX B200, L40S, the Ada and
# Ampere (GA102) white papers, MI300X, Cloud TPU v4, v5e, v5p.
DEVICES: dict[str, Device] = {
    "a100-40gb": Device(312e12, 40e9),
    "a100-80gb": Device(312e12, 80e9),
    "h100": Device(989e12, 80e9),
    "h200": Device(989e12, 141e9),
    "b200": Device(2250e12, 180e9),
    "l40s": Device(362e12, 48e9),
    "rtx-3090": Device(71e12, 24e9),
    "rtx-4090": Device(165e12, 24e9),
    "mi300x": Device(1307e12, 192e9),
    "tpu-v4": Device(275e12, 32e9),
    "tpu-v5e": Device(197e12, 16e9),
    "tpu-v5p": Device(459e12, 95e9),
}

RESERVED_BYTES = 1.5e9
"""What the driver, libraries and fragments take of a device's memory; a guess, on the safe side."""


@dataclass(frozen=True)
class Cluster:
    """Name `count` devices of one kind, and the share of their peak that training reaches."""

    name: str
    count: int
    mfu: float

    @property
    def device(self) -> Device:
        """Return what one of them is."""
        return DEVICES[self.name]

    @property
    def flops(self) -> float:
        """Return the model FLOPs a second of all together."""
        return self.count * self.device.peak_flops * self.mfu


@dataclass(frozen=True)
class Need:
    """Hold what a training stage takes on a cluster.

    Attributes:
        device_hours: of all devices together.
        wall_hours: from its start to its end.
        tokens_per_second: by all devices together.
        memory_bytes: the peak of one device.
        fits: whether it has that memory.
        passes: into how many passes a device cuts its share of a batch.
        idle: whether some devices get no sequence, because a batch has fewer.
        sent_bytes: what one device sends in one optimizer step.
    """

    device_hours: float
    wall_hours: float
    tokens_per_second: float
    memory_bytes: float
    fits: bool
    passes: int
    idle: bool
    sent_bytes: float


def need(
    model: ModelSpec,
    method: MethodSpec,
    num_experts: int,
    batch_sequences: int,
    flops: int,
    cluster: Cluster,
) -> Need:
    """Return what a stage of `flops` model training FLOPs takes on a cluster."""
    a_token = per_token(model, method, num_experts, model.max_seq_len).model_training
    rows = -(-batch_sequences // cluster.count)
    passes = _passes(model, method, num_experts, rows, cluster)
    peak = _memory(model, method, num_experts, -(-rows // passes), cluster)
    sent = communication.per_step(model, method, num_experts, batch_sequences, cluster.count)
    hours = flops / cluster.flops / 3600
    return Need(
        device_hours=hours * cluster.count,
        wall_hours=hours,
        tokens_per_second=cluster.flops / a_token,
        memory_bytes=peak,
        fits=peak <= cluster.device.memory_bytes,
        passes=passes,
        idle=batch_sequences < cluster.count,
        sent_bytes=sent.total / cluster.count,
    )


def _passes(
    model: ModelSpec, method: MethodSpec, num_experts: int, rows: int, cluster: Cluster
) -> int:
    """Return the fewest passes, halving the rows of one, that fit; one row each if none do."""
    passes = 1
    while passes < rows and (
        _memory(model, method, num_experts, -(-rows // passes), cluster)
        > cluster.device.memory_bytes
    ):
        passes *= 2
    return min(passes, rows)


def _memory(
    model: ModelSpec, method: MethodSpec, num_experts: int, rows: int, cluster: Cluster
) -> float:
    """Return the peak of one device that takes `rows` sequences at a time."""
    parts = memory.training(model, method, num_experts, rows)
    states = (parts.weights + parts.gradients + parts.optimizer) / cluster.count
    gathered = 0.0
    if cluster.count > 1:
        # Two units at a time, in bf16: the one at work and the next.
        total = count(model, method, num_experts).total
        outside = embedding_params(model) + head_params(model)
        layer = max(total - outside, 0) / model.num_layers
        gathered = 2 * 2 * max(layer, embedding_params(model))
    return states + gathered + parts.activations + parts.logits + RESERVED_BYTES
