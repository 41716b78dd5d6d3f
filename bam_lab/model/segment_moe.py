"""Segment-level mixture of experts: Lory's router, hard selection (arXiv:2405.03133 §4.1).

What is unusual: a decision sends a whole segment to a few experts, whose outputs are combined; it
is taken from the segment before, as in Lory (`segments.py`). The paper's own rival is expert choice
with capacity factor 1: in training experts choose among all segments of a batch, at inference every
segment picks its likeliest experts, as no later one is known. Top-k makes the sparse half of the
2x2 {soft, sparse} x {token, segment}.

Matrix products executed: those of token-level FFN experts, but for the router, which decides once a
segment. Under `bos` the first place of every row is an end-of-text token, a segment of its own.

Shapes: B batch, T tokens (the place of `bos` too), P decisions, D dim, E experts, A active.
"""

from itertools import product
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from bam_lab.model.context import Cached, Context, Prompt, RoutingRule
from bam_lab.model.ffn import FFNExperts
from bam_lab.model.layers import swiglu
from bam_lab.model.router import Routing, route, select
from bam_lab.model.segments import SOFT, Running, advance, after_prompt, decide, mean_of
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.segments import SegmentMoEMethod


class DecidedState(NamedTuple):
    """Hold what generation keeps of one layer: the decision for the tokens to come.

    Attributes:
        logits: the router's, of each row's decision.
        running: the current segment.
    """

    logits: Float[Tensor, "B E"]
    running: Running


class SegmentMoE(FFNExperts):
    """Hold E SwiGLUs, stacked, and the router that chooses among them for each segment."""

    def __init__(self, spec: ModelSpec, method: SegmentMoEMethod, num_experts: int):
        """Allocate the weights, uninitialised."""
        super().__init__(spec, method.ffn_router, num_experts)
        self.segment_len, self.first_segment = method.segment_len, method.first_segment
        self.bos = int(method.first_segment == "bos")  # places before the tokens

    def forward(
        self, x: Float[Tensor, "B T D"], normed: Float[Tensor, "B T D"], context: Context
    ) -> tuple[Float[Tensor, "B T D"], Routing]:
        """Map `x` (in compute precision; `normed` is the same in float32, for the router).

        The routing's places are decisions, not tokens; in generation they are tokens.
        """
        if context.cached is not None:
            return self._generate(x, normed, context.cached)
        if context.prompt is not None:
            return self._after_prompt(x, normed, context.prompt)
        routing = select(self._decide(normed), self.router_spec, context.draw)
        places = self._decision_of(x.shape[1])
        of_places = Routing(
            routing.logits[:, places],
            routing.gates[:, places],
            routing.chosen[:, places],
            None if routing.kept is None else routing.kept[:, places],
        )
        return self._chosen(x, of_places), routing

    def _decide(self, normed: Tensor, prompt: Tensor | None = None) -> Tensor:
        return decide(normed, self.router, self.first_segment, self.segment_len, prompt)

    def _decision_of(self, places: int) -> Tensor:
        """Return which decision each place of a row follows."""
        tokens = torch.arange(places - self.bos, device=self.router.device) // self.segment_len
        return F.pad(tokens + self.bos, (self.bos, 0))

    def _after_prompt(self, x: Tensor, normed: Tensor, prompt: Prompt) -> tuple[Tensor, Routing]:
        """Go on after a prompt as generation does, on whole rows: its uncached form."""
        count = torch.full((x.shape[0],), prompt.length, device=x.device)
        logits = self._decide(normed, count)[:, self._decision_of(x.shape[1])]  # B T E
        if prompt.rule == "prompt":
            own = route(mean_of(normed[:, self.bos :], count), self.router, SOFT).logits
            later = torch.arange(x.shape[1], device=x.device) >= prompt.length + self.bos
            logits = own.where(later[:, None], logits)
        routing = select(logits, self.router_spec)
        return self._chosen(x, routing), routing

    def _generate(self, x: Tensor, normed: Tensor, cached: Cached) -> tuple[Tensor, Routing]:
        if cached.prompt:
            logits, state = start(self, normed, cached.lengths, cached.rule)
        else:
            logits, state = step(self, normed, cached.layer.ffn, cached.rule)
        cached.layer.ffn = state
        routing = select(logits, self.router_spec)
        return self._chosen(x, routing), routing


def start(
    module: SegmentMoE,
    normed: Float[Tensor, "B T D"],
    lengths: Int[Tensor, " B"],
    rule: RoutingRule,
) -> tuple[Float[Tensor, "B T E"], DecidedState]:
    """Return the logits of every place of prompts, and the decision for their next tokens.

    Arguments as for `lory.start`.
    """
    count = lengths - module.bos
    logits = module._decide(normed, count)
    after, running = after_prompt(
        logits, normed[:, module.bos :], module.router, module.segment_len, count, rule, once=False
    )
    return logits[:, module._decision_of(normed.shape[1])], DecidedState(after, running)


def step(
    module: SegmentMoE, normed: Float[Tensor, "B 1 D"], state: DecidedState, rule: RoutingRule
) -> tuple[Float[Tensor, "B 1 E"], DecidedState]:
    """Return the logits of one further token of each row; a full segment decides for the next."""
    logits, running = state
    if rule == "segment":
        full, new, running = advance(running, normed, module.router, module.segment_len)
        logits = logits.index_put((full,), new)
    return logits.unsqueeze(1), DecidedState(logits, running)


def segment_moe_reference(
    module: SegmentMoE, x: Float[Tensor, "B T D"], routing: Routing
) -> Float[Tensor, "B T D"]:
    """Send each place to the experts of its decision, one by one: the oracle of the dispatch."""
    outputs = torch.zeros_like(x)
    for row, place in product(range(x.shape[0]), range(x.shape[1])):
        token = place - module.bos
        decision = 0 if token < 0 else token // module.segment_len + module.bos
        for expert, gate in enumerate(routing.gates[row, decision]):
            if gate > 0:
                own = (module.gate[expert], module.up[expert], module.down[expert])
                outputs[row, place] += gate * swiglu(x[row, place], *own)
    return outputs
