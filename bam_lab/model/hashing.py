"""Tables that send each token to an expert by its id (Hash Layers, arXiv:2106.04426 §3.1).

A table is a function of its spec, the token counts and, for the clustered kinds, the embeddings
that the model starts from (the paper's are a trained model's), so it can be made again. What the
paper leaves open and we took: clusters hold equal numbers of tokens, a full one passes its further
tokens on to the next nearest; without counts the balanced table deals tokens out in the order of
their ids, which for byte-pair tokens is near the order of their frequency.

Shapes: V vocab, D dim, E experts.
"""

import heapq
from typing import assert_never

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from bam_lab.spec.routers import HashRouter

ROUNDS = 20  # of k-means
_TINY = 1e-12  # some chance where all tokens are at a centre


@torch.no_grad()
def hash_table(
    router: HashRouter,
    num_experts: int,
    embedding: Float[Tensor, "V D"],
    counts: Int[Tensor, " V"] | None = None,
) -> Int[Tensor, " V"]:
    """Return each token's expert; `counts` are the tokens' frequencies in the training text."""
    embedding, vocab = embedding.detach().cpu().float(), embedding.shape[0]
    generator = torch.Generator().manual_seed(router.table_seed)
    match router.kind:
        case "random":
            return torch.randint(num_experts, (vocab,), generator=generator)
        case "balanced":
            return balanced(torch.ones(vocab) if counts is None else counts, num_experts)
        case "clustered":
            return clustered(embedding, num_experts, generator)
        case "dispersed":
            return dispersed(clustered(embedding, num_experts, generator), num_experts)
        case _:
            assert_never(router.kind)


def balanced(counts: Tensor, num_experts: int) -> Int[Tensor, " V"]:
    """Give each token, most frequent first, to the expert with the least text so far."""
    table = torch.zeros(len(counts), dtype=torch.long)
    loads = [(0.0, expert) for expert in range(num_experts)]
    for token in counts.argsort(descending=True, stable=True).tolist():
        load, expert = heapq.heappop(loads)
        table[token] = expert
        heapq.heappush(loads, (load + float(counts[token]), expert))
    return table


def clustered(
    embedding: Float[Tensor, "V D"], num_experts: int, generator: torch.Generator
) -> Int[Tensor, " V"]:
    """Give each token to the nearest of `num_experts` k-means centres that is not full."""
    centres = embedding[torch.randint(len(embedding), (1,), generator=generator)]
    for _ in range(num_experts - 1):  # k-means++: far from those so far, by squared distance
        far = torch.cdist(embedding, centres).amin(1).square() + _TINY
        centres = torch.cat((centres, embedding[far.multinomial(1, generator=generator)]))
    for _ in range(ROUNDS):
        nearest = torch.cdist(embedding, centres).argmin(1)
        members = F.one_hot(nearest, num_experts).float()  # V E
        sizes = members.sum(0).unsqueeze(1)
        centres = (members.T @ embedding / sizes.clamp_min(1)).where(sizes > 0, centres)
    room = [-(-len(embedding) // num_experts)] * num_experts
    table = torch.zeros(len(embedding), dtype=torch.long)
    for token, wishes in enumerate(torch.cdist(embedding, centres).argsort(1).tolist()):
        expert = next(expert for expert in wishes if room[expert])
        table[token] = expert
        room[expert] -= 1
    return table


def dispersed(clusters: Int[Tensor, " V"], num_experts: int) -> Int[Tensor, " V"]:
    """Deal each cluster's tokens out over the experts, so that like tokens part."""
    table = torch.empty_like(clusters)
    table[clusters.argsort(stable=True)] = torch.arange(len(clusters)) % num_experts
    return table
