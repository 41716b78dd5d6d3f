"""What routers did, counted: sums over decisions, from which every routing measure is made.

All methods are counted the same way. A decision is a token's, or a segment's or a sequence's where
these are routed; it counts once if a scored token follows it, so padding, the token before a
sequence and what fills up a last segment are left out. A decision goes to an expert with weight 1
where experts are chosen (kept choices only), and with its gate where every expert serves it: soft
routing, and merged parameters.

Shapes: B batch, T tokens, P decisions, E experts, A active.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from bam_lab.model.router import Routing
from bam_lab.model.transformer import Output
from bam_lab.spec.experts import has_bos
from bam_lab.spec.methods import LoryMethod, MethodSpec, SegmentMoEMethod

Floats = NDArray[np.float64]
Kind = Literal["ffn", "attention"]
KINDS: tuple[Kind, ...] = ("ffn", "attention")


class Place(NamedTuple):
    """Name one router of a model."""

    layer: int
    router: Kind


def routings_of(output: Output) -> Iterator[tuple[Place, Routing]]:
    """Yield every router's decisions of a forward pass."""
    for index, layer in enumerate(output.routings):
        for kind in KINDS:
            routing: Routing | None = getattr(layer, kind)
            if routing is not None:
                yield Place(index, kind), routing


class Counts(NamedTuple):
    """Hold the sums of one router over some text.

    Attributes:
        decisions: how many were counted.
        weight: with which they go to each expert, summed [E].
        likeliest: decisions that give each expert more than any other [E].
        above: decisions that give each expert more than 2/E (arXiv:2405.03133 appendix G) [E].
        served: decisions by the number of experts that serve them [E+1].
        entropy: of the router's softmax, summed, in nats.
        choices: that were made, where a limit may drop some.
        dropped: choices that it did drop.
    """

    decisions: int
    weight: Floats
    likeliest: Floats
    above: Floats
    served: Floats
    entropy: float
    choices: int
    dropped: int

    def plus(self, other: Self | None) -> "Counts":
        """Return the sums over both texts."""
        if other is None:
            return self
        pairs: Any = zip(self, other, strict=True)
        return Counts(*(a + b for a, b in pairs))


@torch.no_grad()
def count(routing: Routing, counted: Bool[Tensor, "B P"]) -> Counts:
    """Add one router's decisions up, those that are `counted`."""
    experts = routing.logits.shape[-1]
    log = routing.logits[counted].double().log_softmax(-1)
    gates = routing.gates[counted].double()
    serves = serving(routing)[counted]
    number = serves.sum(-1)
    best = gates.argmax(-1)[number > 0]
    choices = dropped = 0
    if routing.kept is not None and routing.chosen.shape[-1] < experts:
        kept = routing.kept[counted]
        choices, dropped = kept.numel(), int((~kept).sum())
    return Counts(
        decisions=int(counted.sum()),
        weight=_array(weights(routing)[counted].double().sum(0)),
        likeliest=_array(torch.bincount(best, minlength=experts)),
        above=_array((gates > 2 / experts).sum(0)),
        served=_array(torch.bincount(number, minlength=experts + 1)),
        entropy=float(-(log.exp() * log).sum()),
        choices=choices,
        dropped=dropped,
    )


def serving(routing: Routing) -> Bool[Tensor, "B P E"]:
    """Return which experts serve each decision: the choices that are kept."""
    kept = torch.ones_like(routing.chosen, dtype=torch.bool)
    kept = kept if routing.kept is None else routing.kept
    return torch.zeros_like(routing.logits, dtype=torch.bool).scatter(-1, routing.chosen, kept)


def weights(routing: Routing) -> Float[Tensor, "B P E"]:
    """Return the weight with which each decision goes to each expert."""
    return routing.gates if every_expert_serves(routing) else serving(routing).float()


def every_expert_serves(routing: Routing) -> bool:
    """Return whether nothing is chosen: soft routing, and merged parameters."""
    return routing.kept is None and routing.chosen.shape[-1] == routing.logits.shape[-1]


def decision_of(method: MethodSpec, tokens: int, decisions: int) -> Int[Tensor, " T"]:
    """Return which of a row's `decisions` each of its `tokens` follows."""
    places = torch.arange(tokens)
    if isinstance(method, LoryMethod | SegmentMoEMethod) and decisions > 1:
        return places // method.segment_len + has_bos(method)
    if decisions == 1:  # of a whole sequence
        return torch.zeros_like(places)
    assert decisions == tokens
    return places


def decisions_that_count(
    method: MethodSpec, routing: Routing, scored: Bool[Tensor, "B T"]
) -> Bool[Tensor, "B P"]:
    """Return the decisions that some scored token follows."""
    decisions = routing.logits.shape[1]
    followed = decision_of(method, scored.shape[1], decisions).to(scored.device)
    found = scored.new_zeros((scored.shape[0], decisions), dtype=torch.long)
    return found.index_add_(1, followed, scored.long()) > 0


def _array(x: Tensor) -> Floats:
    found: Floats = x.double().cpu().numpy()
    return found
