"""Count the bytes that devices send to each other in training. Analytic; gloo sends as many.

- Gradients are averaged over all devices by an all-reduce in float32: of a payload of P bytes each
  of n devices sends 2 (n - 1) / n P (ring; no algorithm sends less). Sharding everything (ZeRO 3)
  sends as many: weights gathered twice in bf16, gradients scattered once in float32.
- Experts may be spread over groups of devices (arXiv:2101.03961 §2.2, as BAM does,
  arXiv:2408.08274 §4). Then an expert's gradients stay among the devices that hold it, and tokens
  travel in bf16: to their experts and back, and once more each way in the backward. Routing is
  taken as even: of n devices one is the token's own. A token goes once to every expert that it
  uses; an attention expert needs every token, for its keys, and sends back what it was chosen for.
- Merged FFNs are cut along their hidden width instead (arXiv:2405.03133 §6): every token goes to
  all devices of a group and comes back as partial sums.

What routers send (logits, counts) is left out: it is 1 / dim of the tokens.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import gcd

from bam_lab.cost.layer import LayerExperts, layers_of
from bam_lab.cost.params import count, expert_params, frozen_params, key_params, query_params
from bam_lab.spec.experts import is_trained, shape_of
from bam_lab.spec.methods import (
    LoryMethod,
    MethodSpec,
    SMEARMethod,
    SoftMoEMethod,
    TokenMergingMethod,
)
from bam_lab.spec.model import ModelSpec

GRADIENT_BYTES = 4
ACTIVATION_BYTES = 2

DEVICES = 8
"""Devices of the layout in which reports state what arms send."""


@dataclass(frozen=True)
class Sent:
    """Hold the bytes of one optimizer step, sent by all devices together.

    Attributes:
        gradients: by the all-reduces.
        tokens: by the all-to-alls that take tokens to experts and back.
    """

    gradients: int
    tokens: int

    @property
    def total(self) -> int:
        """Return both together."""
        return self.gradients + self.tokens


def group_size(num_experts: int, devices: int) -> int:
    """Return over how many devices experts are spread: as many as divide both evenly."""
    return gcd(num_experts, devices)


def per_step(
    model: ModelSpec,
    method: MethodSpec,
    num_experts: int,
    batch_sequences: int,
    devices: int,
    group: int | None = None,
) -> Sent:
    """Count one optimizer step on `devices` devices.

    Args:
        model: the dense models' shape.
        method: what is trained.
        num_experts: experts that its routers choose from.
        batch_sequences: sequences of a step, over all devices.
        devices: how many hold a copy of what is not an expert.
        group: over how many of them experts are spread, a divisor of both counts; `group_size`
            if None, 1 for plain data parallelism.
    """
    if not is_trained(method):
        return Sent(0, 0)
    group = group_size(num_experts, devices) if group is None else group
    assert devices % group == 0 and num_experts % group == 0, (devices, num_experts, group)
    model = shape_of(method, model)
    layers = layers_of(method, num_experts, model.num_layers, "training")
    trained = count(model, method, num_experts).total - frozen_params(model, method, num_experts)
    spread = sum(_expert_params(model, experts) for experts in layers) if group > 1 else 0
    copies = devices // group
    gradients = gradients_per_step(trained - spread, devices) + gradients_per_step(spread, copies)
    moved = sum(_moved(method, experts, group, model.max_seq_len) for experts in layers)
    numbers = moved * batch_sequences * model.max_seq_len * model.dim
    return Sent(
        gradients=gradients,
        tokens=round(ACTIVATION_BYTES * numbers * Fraction(group - 1, group)),
    )


def gradients_per_step(params: int, devices: int) -> int:
    """Return the bytes that all devices together send to average the gradients of `params`."""
    return GRADIENT_BYTES * 2 * (devices - 1) * params


def _expert_params(model: ModelSpec, experts: LayerExperts) -> int:
    """Count the trained parameters of one layer that are spread, all its experts together."""
    counts = {
        "ffn": experts.ffn * expert_params(model, experts) * (experts.ffn > 1),
        "query": experts.query * query_params(model) * (experts.query > 1),
        "key": experts.key * key_params(model) * (experts.key > 1),
    }
    return sum(number for part, number in counts.items() if part not in experts.frozen)


def _moved(method: MethodSpec, experts: LayerExperts, group: int, seq_len: int) -> Fraction:
    """Return how often a token's vector travels in one layer, own device included."""
    if experts.routers == 0 or group == 1:
        return Fraction(0)
    reached = Fraction(experts.ffn_active)
    match method:
        case LoryMethod() | SMEARMethod() | TokenMergingMethod():
            reached = Fraction(group)
        case SoftMoEMethod(slots_per_expert=slots):
            reached = Fraction(experts.ffn * slots, seq_len)
        case _:
            pass
    there_and_back = 2 * reached
    if experts.query > 1:
        there_and_back += experts.query + experts.query_active
    return 2 * there_and_back  # the backward sends the gradient of each
