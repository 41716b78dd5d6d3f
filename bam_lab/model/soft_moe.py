"""Soft MoE: experts process slots, each a weighted mean of all tokens (arXiv:2308.00951 §2.1).

What is unusual: nothing is chosen. With Phi [E*P, D] the logits are x Phi^T; a softmax over tokens
makes each slot's weights (dispatch), one over slots each token's (combine). The router's weights
are Phi, [E, P, D], so that experts are its first axis. Not causal: a slot mixes all tokens of a
sequence, in training and when held-out text is scored, so its losses are no losses of a language
model. We leave out the paper's optional normalisation of x and Phi (§2.3): inputs are normed here.

The routing reports experts: a token's logit for one is the logsumexp over its slots, so that the
softmax over experts is the sum of its combine weights.

Matrix products executed for a sequence of T tokens: logits, dispatch and combine T x E P x D each,
and a SwiGLU for each of E P slots.

Shapes: B batch, T tokens, D dim, F ffn_dim, E experts, P slots of an expert.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from bam_lab.model.context import Context
from bam_lab.model.layers import swiglu_stacks, to_compute
from bam_lab.model.router import Routing, everyone
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.segments import SoftMoEMethod


class SoftMoE(nn.Module):
    """Hold E SwiGLUs, stacked, and the slots' weights."""

    def __init__(self, spec: ModelSpec, method: SoftMoEMethod, num_experts: int):
        """Allocate the weights, uninitialised."""
        super().__init__()
        self.router = nn.Parameter(torch.empty(num_experts, method.slots_per_expert, spec.dim))
        self.gate, self.up, self.down = swiglu_stacks(spec, num_experts)

    def forward(
        self, x: Float[Tensor, "B T D"], normed: Float[Tensor, "B T D"], context: Context
    ) -> tuple[Float[Tensor, "B T D"], Routing]:
        """Map `x` (in compute precision; `normed` is the same in float32, for the logits)."""
        batch, experts = x.shape[0], self.router.shape[0]
        with torch.autocast(x.device.type, enabled=False):
            logits = F.linear(normed, self.router.flatten(0, 1))  # B T EP
        dispatch, combine = to_compute(logits.softmax(1)), to_compute(logits.softmax(2))
        slots = torch.bmm(dispatch.mT, x)  # B EP D
        own = slots.view(batch, experts, -1, x.shape[2]).transpose(0, 1).flatten(1, 2)  # E BP D
        hidden = F.silu(torch.bmm(own, self.gate.mT)) * torch.bmm(own, self.up.mT)  # E BP F
        out = torch.bmm(hidden, self.down.mT)  # E BP D
        out = out.view(experts, batch, -1, x.shape[2]).transpose(0, 1).flatten(1, 2)  # B EP D
        by_expert = logits.view(*x.shape[:2], experts, -1).logsumexp(-1)  # B T E
        routing = Routing(by_expert, by_expert.softmax(-1), everyone(by_expert))
        return torch.bmm(combine, out), routing


def soft_moe_reference(module: SoftMoE, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    """Fill each slot and run its expert, one by one: the oracle."""
    return torch.stack([_row_reference(module, row) for row in x])


def _row_reference(module: SoftMoE, row: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
    scores, outputs = [], []
    for expert, slots in enumerate(module.router):
        for phi in slots:
            score = row @ phi  # T
            slot = score.softmax(0) @ row
            hidden = F.silu(module.gate[expert] @ slot) * (module.up[expert] @ slot)
            outputs.append(module.down[expert] @ hidden)
            scores.append(score)
    return torch.stack(scores, 1).softmax(1) @ torch.stack(outputs)
