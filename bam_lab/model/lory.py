"""Lory: one FFN a segment, merged of all experts by the segment before it (arXiv:2405.03133 §3).

What is unusual:
- routing combines parameters, not outputs, and decides once a segment, from the mean of the FFN's
  inputs over the segment before: a token's FFN is settled before its segment begins;
- the first segment has none before it. `own_mean` (the paper's, App. A) takes its own mean, with no
  gradient to that decision; its tokens then see later ones of the segment in the forward pass.
  `uniform` weighs all experts alike and is causal;
- held-out text is scored by the rule of training: routed again at every segment, not once from a
  prompt;
- experts are merged in float32 also under autocast: gates rounded to bf16 would not sum to 1, and
  copies of one model would not merge into that model.

A last, shorter segment is filled with zeros, which nobody reads. Matrix products executed for a
sequence of N segments: router N x E x D, merging N x E x 3 F D, and a SwiGLU for each of N x S
places.

Shapes: B batch, T tokens, N segments, S segment_len, M = B * N, D dim, F ffn_dim, E experts.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from bam_lab.model.context import Context
from bam_lab.model.layers import to_compute
from bam_lab.model.router import Routing, route
from bam_lab.spec.methods import LoryMethod
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.routers import SoftRouter

SOFT = SoftRouter(score="softmax", select="all")


class MergedFFN(nn.Module):
    """Hold E SwiGLUs, stacked, and the router that weighs them for each segment."""

    def __init__(self, spec: ModelSpec, method: LoryMethod, num_experts: int):
        """Allocate the weights, uninitialised."""
        super().__init__()
        self.segment_len, self.first_segment = method.segment_len, method.first_segment
        self.router = nn.Parameter(torch.empty(num_experts, spec.dim))
        self.gate = nn.Parameter(torch.empty(num_experts, spec.ffn_dim, spec.dim))
        self.up = nn.Parameter(torch.empty(num_experts, spec.ffn_dim, spec.dim))
        self.down = nn.Parameter(torch.empty(num_experts, spec.dim, spec.ffn_dim))

    def forward(
        self, x: Float[Tensor, "B T D"], normed: Float[Tensor, "B T D"], context: Context
    ) -> tuple[Float[Tensor, "B T D"], Routing]:
        """Map `x` (in compute precision; `normed` is the same in float32, for the router).

        The routing's places are segments, not tokens.
        """
        length = min(self.segment_len, x.shape[1])
        routing = self._route(segments(normed, length).mean(2))
        gate_up = merge(routing.gates, torch.cat((self.gate, self.up), 1))  # M 2F D
        down = merge(routing.gates, self.down)  # M D F
        places = segments(x, length).flatten(0, 1)  # M S D
        gated, upped = torch.bmm(places, gate_up.transpose(1, 2)).chunk(2, -1)  # M S F
        y = torch.bmm(F.silu(gated) * upped, down.transpose(1, 2))  # M S D
        return y.view(x.shape[0], -1, x.shape[2])[:, : x.shape[1]], routing

    def _route(self, means: Float[Tensor, "B N D"]) -> Routing:
        """Weigh the experts of each segment by the mean before it; equal logits are `uniform`."""
        routing = route(means, self.router, SOFT)
        own = routing.logits[:, :1].detach()
        first = own if self.first_segment == "own_mean" else torch.zeros_like(own)
        logits = torch.cat((first, routing.logits[:, :-1]), 1)  # B N E
        return Routing(logits, logits.softmax(-1), routing.chosen)


def segments(x: Float[Tensor, "B T D"], length: int) -> Float[Tensor, "B N S D"]:
    """Cut rows into segments of `length` tokens, the last one filled with zeros."""
    filled = F.pad(x, (0, 0, 0, -x.shape[1] % length))
    return filled.reshape(x.shape[0], -1, length, x.shape[2])


def merge(gates: Float[Tensor, "B N E"], weight: Float[Tensor, "E O I"]) -> Float[Tensor, "M O I"]:
    """Return each segment's weighted sum of the experts' weights, for the products to come."""
    with torch.autocast(gates.device.type, enabled=False):
        merged = gates.flatten(0, 1) @ weight.flatten(1)  # M (O I)
    return to_compute(merged).view(-1, *weight.shape[1:])


def merged_ffn_reference(module: MergedFFN, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    """Go through each row segment by segment: the oracle of `MergedFFN`."""
    return torch.stack([_row_reference(module, row) for row in x])


def _row_reference(module: MergedFFN, row: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
    outputs = []
    before = None
    for segment in torch.split(row, module.segment_len):
        if before is not None:
            gates = (module.router @ before.mean(0)).softmax(0)
        elif module.first_segment == "own_mean":
            gates = (module.router @ segment.mean(0)).softmax(0).detach()
        else:
            gates = torch.full_like(module.router[:, 0], 1 / len(module.router)).detach()
        stacks = (module.gate, module.up, module.down)
        gate, up, down = (torch.einsum("e,eoi->oi", gates, stack) for stack in stacks)
        outputs.append((F.silu(segment @ gate.T) * (segment @ up.T)) @ down.T)
        before = segment
    return torch.cat(outputs)
