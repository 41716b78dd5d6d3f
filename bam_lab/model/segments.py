"""What methods that route segments share: cutting rows, and deciding by the segment before.

A decision for segment k is the router's logits of the mean of the FFN's inputs over segment k - 1
(arXiv:2405.03133 §3): a token's experts are settled before its segment begins. The first segment
has none before it:
- `own_mean` (the paper's, App. A) takes its own mean, with no gradient to that decision; its tokens
  then see later ones of the segment in the forward pass;
- `bos` puts an end-of-text token before the sequence (`transformer.py`), a segment of one place
  that is routed by itself and routes the first one;
- `uniform` gives every expert the same logit.

Shapes: B batch, T tokens (the place of `bos` too), N segments, S segment_len, D dim, E experts,
P decisions: N, and one more, the first, for `bos`, G rows of a batch.
"""

from typing import Literal, NamedTuple, assert_never

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bam_lab.model.context import RoutingRule
from bam_lab.model.router import route
from bam_lab.spec.routers import SoftRouter

FirstSegment = Literal["own_mean", "bos", "uniform"]
SOFT = SoftRouter(score="softmax", select="all")


def segments(x: Float[Tensor, "B T D"], length: int) -> Float[Tensor, "B N S D"]:
    """Cut rows into segments of `length` tokens, the last one filled with zeros."""
    filled = F.pad(x, (0, 0, 0, -x.shape[1] % length))
    return filled.reshape(x.shape[0], -1, length, x.shape[2])


class Running(NamedTuple):
    """Hold what generation keeps of the current segment of each row.

    Attributes:
        total: sum of the FFN's inputs over it.
        size: its tokens so far.
    """

    total: Float[Tensor, "B D"]
    size: Int[Tensor, " B"]


def mean_of(x: Float[Tensor, "B T D"], count: Int[Tensor, " B"]) -> Float[Tensor, "B 1 D"]:
    """Return the mean of each row's first `count` places, or of all where it has fewer."""
    places = torch.arange(x.shape[1], device=x.device)
    held = (places < count[:, None]).unsqueeze(-1)  # B T 1
    return x.where(held, 0.0).sum(1, keepdim=True) / held.sum(1, keepdim=True).clamp(min=1)


def decide(
    normed: Float[Tensor, "B T D"],
    router: Float[Tensor, "E D"],
    first: FirstSegment,
    length: int,
    prompt: Int[Tensor, " B"] | None = None,
) -> Float[Tensor, "B P E"]:
    """Return the logits of every decision, each from the segment before.

    Args:
        normed: the FFN's inputs in float32.
        router: its weights.
        first: how the first segment is decided.
        length: segment_len.
        prompt: tokens of each row's prompt, where what follows was not known when `own_mean` took
            the mean of the first segment; None where rows are all text.
    """
    logits = _route_means(normed, router, first, length)
    return torch.cat((_first(logits, normed, router, first, length, prompt), logits[:, :-1]), 1)


def decide_once(
    normed: Float[Tensor, "B T D"],
    router: Float[Tensor, "E D"],
    first: FirstSegment,
    length: int,
    prompt: Int[Tensor, " B"] | None = None,
) -> Float[Tensor, "B P E"]:
    """Return the logits of one decision for the whole sequence, from its first segment.

    Under `own_mean` they stand twice if the sequence is longer: for the first segment's tokens,
    which teach the router nothing, and for the later ones. Arguments as in `decide`.
    """
    seen = normed[:, : 1 if first == "bos" else length]
    logits = _route_means(seen, router, first, length)
    own = _first(logits, normed, router, first, length, prompt)
    if first == "bos" or normed.shape[1] <= length:
        return own
    return torch.cat((own, logits if prompt is None else own), 1)


def after_prompt(
    logits: Float[Tensor, "B P E"],
    normed: Float[Tensor, "B T D"],
    router: Float[Tensor, "E D"],
    length: int,
    count: Int[Tensor, " B"],
    rule: RoutingRule,
    once: bool,
) -> tuple[Float[Tensor, "B E"], Running]:
    """Return the logits that decide for each row's next token, and its current segment.

    Args:
        logits: the decisions over the prompts, from `decide`, or `decide_once` where `once`.
        normed: the FFN's inputs, each row's first token at place 0, without the place of `bos`.
        router: the router's weights.
        length: segment_len.
        count: tokens of each prompt; what stands behind them is ignored.
        rule: `prompt` decides by the mean over the whole prompt, `segment` as in training.
        once: whether one decision holds for the whole sequence.
    """
    rows = torch.arange(normed.shape[0], device=normed.device)
    places = torch.arange(normed.shape[1], device=normed.device)
    current = (count - 1).clamp(min=0) // length  # the segment in which the prompt ends
    inside = (places >= current[:, None] * length) & (places < count[:, None])
    running = Running((normed * inside.unsqueeze(-1)).sum(1), inside.sum(1))
    if rule == "prompt":
        return route(mean_of(normed, count), router, SOFT).logits[:, 0], running
    if once:
        return logits[:, -1], running
    bos = logits.shape[1] - -(-normed.shape[1] // length)  # the decision of that place
    return logits[rows, (current + bos).clamp(max=logits.shape[1] - 1)], running


def advance(
    running: Running, normed: Float[Tensor, "B 1 D"], router: Float[Tensor, "E D"], length: int
) -> tuple[Bool[Tensor, " B"], Float[Tensor, "G E"], Running]:
    """Count one further token of each row.

    Returns:
        Which G rows begin a segment with it, the logits that decide for these, and what is kept.
    """
    full = running.size == length
    means = running.total[full].unsqueeze(1) / length
    logits = route(means, router, SOFT).logits[:, 0]
    total = running.total.where(~full.unsqueeze(-1), 0.0) + normed[:, 0]
    return full, logits, Running(total, running.size.where(~full, 0) + 1)


def _route_means(normed: Tensor, router: Tensor, first: FirstSegment, length: int) -> Tensor:
    """Return the logits of each segment's mean, after those of the place of `bos`."""
    bos = first == "bos"
    tokens = normed[:, bos:]
    means = segments(tokens, min(length, tokens.shape[1]) or 1).mean(2)
    return route(torch.cat((normed[:, :1], means), 1) if bos else means, router, SOFT).logits


def _first(
    logits: Tensor,
    normed: Tensor,
    router: Tensor,
    first: FirstSegment,
    length: int,
    prompt: Tensor | None,
) -> Tensor:
    match first:
        case "own_mean" if prompt is not None:
            return route(mean_of(normed[:, :length], prompt), router, SOFT).logits.detach()
        case "own_mean":
            return logits[:, :1].detach()
        case "bos":
            return logits[:, :1]
        case "uniform":
            return torch.zeros_like(logits[:, :1])
        case _:
            assert_never(first)
