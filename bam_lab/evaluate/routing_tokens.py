"""Token examples: which tokens of the vocabulary go to an expert more than to others.

A token of a segment goes where its segment goes.

Shapes: B batch, T tokens, P decisions, E experts, V vocab.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bam_lab.evaluate.routing_counts import KINDS, Place, decision_of, routings_of, weights
from bam_lab.model.router import Routing
from bam_lab.model.transformer import Output
from bam_lab.spec.methods import MethodSpec

EXAMPLES, LEAST_SEEN = 10, 5
"""Tokens that are shown of an expert, and how often one must stand in the text."""
_TINY = 1e-30  # a token that no expert takes has shares of 0


class TokenSums(NamedTuple):
    """Hold the weight with which each token of the vocabulary goes to each expert.

    Attributes:
        weight: summed over its occurrences.
        seen: its occurrences.
    """

    weight: Float[Tensor, "V E"]
    seen: Int[Tensor, " V"]


def no_tokens(vocab_size: int, num_experts: int) -> TokenSums:
    """Return the sums over no text."""
    return TokenSums(
        torch.zeros(vocab_size, num_experts), torch.zeros(vocab_size, dtype=torch.long)
    )


@torch.no_grad()
def add_tokens(
    sums: TokenSums,
    method: MethodSpec,
    routing: Routing,
    tokens: Int[Tensor, "B T"],
    scored: Bool[Tensor, "B T"],
) -> None:
    """Add the scored tokens of a batch to `sums`, in place."""
    followed = decision_of(method, tokens.shape[1], routing.logits.shape[1])
    each = weights(routing)[:, followed.to(tokens.device)]  # B T E
    ids = tokens[scored].cpu()
    sums.weight.index_add_(0, ids, each[scored].to(sums.weight))
    sums.seen.index_add_(0, ids, torch.ones_like(ids))


def shown(output: Output) -> set[Place]:
    """Return the routers whose tokens are shown: each kind's first, middle and last."""
    places = [place for place, _ in routings_of(output)]
    found = set()
    for kind in KINDS:
        own = [place for place in places if place.router == kind]
        found |= {own[0], own[len(own) // 2], own[-1]} if own else set()
    return found


def examples(
    sums: Mapping[Place, TokenSums], most: int = EXAMPLES, least: int = LEAST_SEEN
) -> list[dict[str, Any]]:
    """Return the tokens that go to each expert more than others do, the surest first.

    A row is layer, router, expert, token (its id), share (of the token's load that the expert
    takes) and n, how often it was seen. Tokens seen fewer than `least` times are left out, and
    those of which the expert takes no more than of all; of equal shares the more frequent is first.
    """
    rows = []
    for place, (weight, seen) in sums.items():
        shares = weight / weight.sum(-1, keepdim=True).clamp_min(_TINY)
        usual = weight.sum(0) / weight.sum().clamp_min(_TINY)
        for expert, own in enumerate(shares.T):
            known = torch.nonzero((seen >= least) & (own > usual[expert]))[:, 0]
            order = np.lexsort((-seen[known].numpy(), -own[known].numpy()))[:most]
            rows += [
                {
                    "layer": place.layer,
                    "router": place.router,
                    "expert": expert,
                    "token": token,
                    "share": float(own[token]),
                    "n": int(seen[token]),
                }
                for token in known[torch.from_numpy(order)].tolist()
            ]
    return rows
