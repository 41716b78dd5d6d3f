"""Soft merging at token level: each token's own FFN, merged of all experts by its gates.

The soft half of the 2x2 {soft, sparse} x {token, segment} (question B9; `lory.py` at segment
level). Merged weights never exist: a matrix merged of E is linear in them, (sum_e g_e W_e) x =
sum_e W_e (g_e x), so each product is one over all experts side by side, on the input scaled by each
gate. It is not soft routing (`FFNExperts`), which applies the activation to each expert's own sum.

Matrix products executed for N tokens: router E x D, and E times a SwiGLU. Of a token the backward
needs E (D + F) numbers and 4 F.

Shapes: B batch, T tokens, D dim, F ffn_dim, E experts.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from bam_lab.model.context import Context
from bam_lab.model.layers import project, swiglu_stacks, to_compute
from bam_lab.model.merged import merged_swiglu_reference
from bam_lab.model.router import Routing, route
from bam_lab.model.segments import SOFT
from bam_lab.spec.model import ModelSpec


class TokenMergedFFN(nn.Module):
    """Hold E SwiGLUs, stacked, and the router that weighs them for each token."""

    def __init__(self, spec: ModelSpec, num_experts: int):
        """Allocate the weights, uninitialised."""
        super().__init__()
        self.router = nn.Parameter(torch.empty(num_experts, spec.dim))
        self.gate, self.up, self.down = swiglu_stacks(spec, num_experts)

    def forward(
        self, x: Float[Tensor, "B T D"], normed: Float[Tensor, "B T D"], context: Context
    ) -> tuple[Float[Tensor, "B T D"], Routing]:
        """Map `x` (in compute precision; `normed` is the same in float32, for the router)."""
        routing = route(normed, self.router, SOFT)
        gate, up, down = (w.transpose(0, 1).flatten(1) for w in (self.gate, self.up, self.down))
        gated, upped = project(_scaled(x, routing.gates), gate, up)
        hidden = F.silu(gated) * upped  # B T F
        return F.linear(_scaled(hidden, routing.gates), down), routing


def _scaled(x: Float[Tensor, "B T I"], gates: Float[Tensor, "B T E"]) -> Float[Tensor, "B T O"]:
    """Lay the input, scaled by each gate, side by side for all experts: O = E * I."""
    return to_compute(x.unsqueeze(2) * gates.unsqueeze(-1)).flatten(2)


def token_merged_reference(
    module: TokenMergedFFN, x: Float[Tensor, "B T D"], gates: Float[Tensor, "B T E"]
) -> Float[Tensor, "B T D"]:
    """Merge the weights of each token, one by one: the oracle."""
    stacks = (module.gate, module.up, module.down)
    tokens = x.flatten(0, 1).unsqueeze(1)  # B*T 1 D
    return merged_swiglu_reference(tokens, gates.flatten(0, 1), *stacks).view_as(x)
