"""SMEAR: one FFN a sequence, merged of all experts by the mean of all its tokens.

arXiv:2306.03745 §3, at FFNs instead of adapters, as in Lory's comparison (arXiv:2405.03133 §2). The
decision gets its gradient from every token. It is not causal, in training and when held-out text is
scored: every token's FFN depends on all tokens, so its losses are no losses of a language model.

Matrix products executed: router E x D once a sequence, and `merged.py`'s for one group a sequence.

Shapes: B batch, T tokens, D dim, F ffn_dim, E experts.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bam_lab.model.context import Context
from bam_lab.model.layers import swiglu_stacks
from bam_lab.model.merged import merged_swiglu
from bam_lab.model.router import Routing, route
from bam_lab.model.segments import SOFT
from bam_lab.spec.model import ModelSpec


class SequenceMergedFFN(nn.Module):
    """Hold E SwiGLUs, stacked, and the router that weighs them for each sequence."""

    def __init__(self, spec: ModelSpec, num_experts: int):
        """Allocate the weights, uninitialised."""
        super().__init__()
        self.router = nn.Parameter(torch.empty(num_experts, spec.dim))
        self.gate, self.up, self.down = swiglu_stacks(spec, num_experts)

    def forward(
        self, x: Float[Tensor, "B T D"], normed: Float[Tensor, "B T D"], context: Context
    ) -> tuple[Float[Tensor, "B T D"], Routing]:
        """Map `x` (in compute precision; `normed` is the same in float32, for the router).

        The routing's only place is the sequence.
        """
        routing = route(normed.mean(1, keepdim=True), self.router, SOFT)
        y = merged_swiglu(x, routing.gates[:, 0], self.gate, self.up, self.down)
        return y, routing
