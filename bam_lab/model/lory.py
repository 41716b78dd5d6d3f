"""Lory: one FFN a segment, merged of all experts by the segment before it (arXiv:2405.03133 §3).

What is unusual:
- routing combines parameters, not outputs, and decides once a segment (`segments.py` says how, and
  what decides for the first one; `merged.py` merges);
- `prefix` routing decides once a sequence, from the first segment. Of its tokens' loss that
  decision gets no gradient under `own_mean`, as under `causal` routing;
- held-out text is scored by the rule of training, routed again at every segment. Generation knows
  two rules (Tables 6, 9): `segment` goes on like that; `prompt` decides once, by the mean over the
  whole prompt, and keeps that one FFN for every later token. The paper does not state by which FFN
  the prompt itself goes; here it goes by the rule of training, under both.

A last, shorter segment is filled with zeros, which nobody reads. Under `bos` the first place of
every row is an end-of-text token, a segment of its own. Matrix products executed for a sequence of
N segments: router P x E x D, and `merged.py`'s for P groups; P is N, or N + 1 under `bos`. Under
`prefix`: one decision, and two groups without filling (one under `bos`, or within a segment).

Shapes: B batch, T tokens, N segments, S segment_len, P decisions, D dim, F ffn_dim, E experts.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bam_lab.model.context import Cached, Context, Prompt, RoutingRule
from bam_lab.model.layers import swiglu_stacks
from bam_lab.model.merged import merge, merged_swiglu
from bam_lab.model.router import Routing, everyone, route
from bam_lab.model.segments import (
    SOFT,
    Running,
    advance,
    after_prompt,
    decide,
    decide_once,
    mean_of,
    segments,
)
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.segments import LoryMethod


class MergedState(NamedTuple):
    """Hold what generation keeps of one layer: one merged FFN a row, and the segment so far.

    Attributes:
        gate_up: gate and up of the FFN of the tokens to come, in compute precision.
        down: its down projection.
        running: the current segment.
    """

    gate_up: Float[Tensor, "B O D"]
    down: Float[Tensor, "B D F"]
    running: Running


class MergedFFN(nn.Module):
    """Hold E SwiGLUs, stacked, and the router that weighs them for each segment."""

    def __init__(self, spec: ModelSpec, method: LoryMethod, num_experts: int):
        """Allocate the weights, uninitialised."""
        super().__init__()
        self.segment_len, self.first_segment = method.segment_len, method.first_segment
        self.bos = int(method.first_segment == "bos")  # places before the tokens
        self.prefix = method.routing == "prefix"
        self.router = nn.Parameter(torch.empty(num_experts, spec.dim))
        self.gate, self.up, self.down = swiglu_stacks(spec, num_experts)

    @property
    def stacks(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the experts' three matrices."""
        return self.gate, self.up, self.down

    def forward(
        self, x: Float[Tensor, "B T D"], normed: Float[Tensor, "B T D"], context: Context
    ) -> tuple[Float[Tensor, "B T D"], Routing | None]:
        """Map `x` (in compute precision; `normed` is the same in float32, for the router).

        The routing's places are decisions, not tokens; generation returns none.
        """
        if context.cached is not None:
            return self._generate(x, normed, context.cached), None
        if context.prompt is not None:
            return self._after_prompt(x, normed, context.prompt), None
        logits = self._decide(normed)
        gates = logits.softmax(-1)
        y = self._feed(x, gates)
        if self.prefix:  # what may stand twice is one decision
            logits, gates = logits[:, -1:], gates[:, -1:]
        return y, Routing(logits, gates, everyone(logits))

    def _decide(self, normed: Tensor, prompt: Tensor | None = None) -> Tensor:
        """Return the logits [B, P, E] of every decision by the rule of training."""
        rule = decide_once if self.prefix else decide
        return rule(normed, self.router, self.first_segment, self.segment_len, prompt)

    def _feed(self, x: Tensor, gates: Tensor) -> Tensor:
        if self.prefix:
            # Two decisions of equal value: the first segment's tokens teach the router nothing.
            first, rest = x[:, : self.segment_len], x[:, self.segment_len :]
            if gates.shape[1] == 1:
                return merged_swiglu(x, gates[:, 0], *self.stacks)
            ys = (merged_swiglu(p, gates[:, i], *self.stacks) for i, p in enumerate((first, rest)))
            return torch.cat(tuple(ys), 1)
        if not self.bos:
            return self._by_segments(x, gates)
        first = merged_swiglu(x[:, :1], gates[:, 0], *self.stacks)
        if x.shape[1] == 1:
            return first
        return torch.cat((first, self._by_segments(x[:, 1:], gates[:, 1:])), 1)

    def _by_segments(self, tokens: Tensor, gates: Tensor) -> Tensor:
        places = segments(tokens, min(self.segment_len, tokens.shape[1]))  # B N S D
        y = merged_swiglu(places.flatten(0, 1), gates.flatten(0, 1), *self.stacks)
        return y.view(tokens.shape[0], -1, tokens.shape[2])[:, : tokens.shape[1]]

    def _after_prompt(self, x: Tensor, normed: Tensor, prompt: Prompt) -> Tensor:
        """Go on after a prompt as generation does, on whole rows: its uncached form."""
        count = torch.full((x.shape[0],), prompt.length, device=x.device)
        if prompt.rule == "segment":
            return self._feed(x, self._decide(normed, count).softmax(-1))
        end = prompt.length + self.bos
        y = self._feed(x[:, :end], self._decide(normed[:, :end], count).softmax(-1))
        after = route(mean_of(normed[:, self.bos : end], count), self.router, SOFT).gates
        return torch.cat((y, merged_swiglu(x[:, end:], after[:, 0], *self.stacks)), 1)

    def _generate(self, x: Tensor, normed: Tensor, cached: Cached) -> Tensor:
        if cached.prompt:
            y, cached.layer.ffn = start(self, x, normed, cached.lengths, cached.rule)
        else:
            y, cached.layer.ffn = step(self, x, normed, cached.layer.ffn, cached.rule)
        return y


def start(
    module: MergedFFN,
    x: Float[Tensor, "B T D"],
    normed: Float[Tensor, "B T D"],
    lengths: Int[Tensor, " B"],
    rule: RoutingRule,
) -> tuple[Float[Tensor, "B T D"], MergedState]:
    """Read prompts by the rule of training, and decide by which FFN their next tokens go.

    Args:
        module: the layer.
        x: its inputs, each row's first token at place 0 (under `bos`, that token); what stands
            behind a shorter prompt is ignored, and its outputs mean nothing.
        normed: the same in float32, for the router.
        lengths: places of each row that count, that of `bos` included.
        rule: `prompt` or `segment`.
    """
    logits = module._decide(normed, lengths - module.bos)
    after, running = after_prompt(
        logits,
        normed[:, module.bos :],
        module.router,
        module.segment_len,
        lengths - module.bos,
        rule,
        module.prefix,
    )
    y = module._feed(x, logits.softmax(-1))
    return y, MergedState(*_merged(module, after.softmax(-1)), running)


def step(
    module: MergedFFN,
    x: Float[Tensor, "B 1 D"],
    normed: Float[Tensor, "B 1 D"],
    state: MergedState,
    rule: RoutingRule,
) -> tuple[Float[Tensor, "B 1 D"], MergedState]:
    """Map one further token of each row; under `segment` a full segment decides for the next."""
    gate_up, down, running = state
    if rule == "segment" and not module.prefix:
        full, logits, running = advance(running, normed, module.router, module.segment_len)
        if len(logits):
            merged = _merged(module, logits.softmax(-1))
            pairs = zip((gate_up, down), merged, strict=True)
            gate_up, down = (old.index_put((full,), new) for old, new in pairs)
    gated, upped = torch.bmm(x, gate_up.mT).chunk(2, -1)
    return torch.bmm(F.silu(gated) * upped, down.mT), MergedState(gate_up, down, running)


def _merged(module: MergedFFN, gates: Float[Tensor, "B E"]) -> tuple[Tensor, Tensor]:
    gate, up, down = (merge(gates, stack) for stack in module.stacks)
    return torch.cat((gate, up), 1), down


def merged_ffn_reference(
    module: MergedFFN, x: Float[Tensor, "B T D"], prompt: Prompt | None = None
) -> Float[Tensor, "B T D"]:
    """Go through each row token by token: the oracle of `MergedFFN`, after a prompt too."""
    return torch.stack([_row_reference(module, row, prompt) for row in x])


def _row_reference(
    module: MergedFFN, row: Float[Tensor, "T D"], prompt: Prompt | None
) -> Float[Tensor, "T D"]:
    size, bos = module.segment_len, module.bos
    known = len(row) - bos if prompt is None else prompt.length

    def own(start: int, end: int) -> Tensor:
        return (module.router @ row[bos + start : bos + end].mean(0)).softmax(0)

    def gates(token: int) -> Tensor:
        segment = 0 if module.prefix else token // size
        if prompt is not None and prompt.rule == "prompt" and token >= known:
            return own(0, known)
        if segment > 0:
            return own((segment - 1) * size, segment * size)
        if bos:
            return (module.router @ row[0]).softmax(0)
        if module.first_segment == "uniform":
            return torch.full_like(module.router[:, 0], 1 / len(module.router)).detach()
        return own(0, min(size, known)) if token >= size else own(0, min(size, known)).detach()

    outputs = []
    for place, x in enumerate(row):
        weights = gates(place - bos)
        gate, up, down = (torch.einsum("e,eoi->oi", weights, w) for w in module.stacks)
        outputs.append(down @ (F.silu(gate @ x) * (up @ x)))
    return torch.stack(outputs)
