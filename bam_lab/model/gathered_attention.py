"""Causal attention of gathered queries: each expert's own queries over that expert's own keys.

For top-k attention with keys and values per expert. Queries stand sorted by (expert, row,
position), as `grouped.py` sorts them; a (row, expert) stretch attends to all keys of its row and
expert up to each query's position. Stretches are taken `CHUNK` (key-value heads) at a time, longest
first so that those of a chunk are alike, and go by tiles of up to `TILE` queries, each over the
keys up to the tile's last position, rounded up to `KEYS`. A chunk's last tile is cut to a multiple
of `FILL` queries; places without a query repeat the stretch's last one, and nobody reads them.
Rounding keeps the number of shapes small: oneDNN compiles a kernel for each.

Measured as for `causal_attention.py`, against all experts over all queries with the unchosen
outputs dropped, 4 experts, bf16, forward and backward (dense attention 30 ms): top-1 67 ms against
180 ms, top-2 105 ms against 190 ms. Tiles of 16 or 32 read fewer keys but take longer.

Executed matrix products: with S = sum over tiles of stretches * queries * keys, both as rounded,
forward 2 products of S * C multiply-adds a head, backward 4, or 5 beyond `KEPT_UP_TO` tokens, where
the probabilities are computed again.

Shapes: Q queries of all stretches, B batch, E experts, K key-value heads, G query heads sharing
one, T keys, C head_dim, M = B * E stretches.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bam_lab.model.grouped import Groups

CHUNK = 32  # key-value heads of one product
TILE = 64
FILL = 16
KEYS = 64
KEPT_UP_TO = 1024  # tokens; beyond, the kept probabilities cost more memory than they save time


class Tile(NamedTuple):
    """Hold one product's queries.

    Attributes:
        read: the query at each place.
        write: the same, but Q where nobody reads the result.
        positions: of the queries, in their rows.
        starts: the first key that each may see; None where that is the row's first.
        masked_from: keys before it are seen by every query of the tile, those that `starts` hides
            apart.
        keys: keys that are read.
    """

    read: Int[Tensor, "N R"]
    write: Int[Tensor, "N R"]
    positions: Int[Tensor, "N R"]
    starts: Int[Tensor, "N R"] | None
    masked_from: int
    keys: int


class Chunk(NamedTuple):
    """Hold the stretches (expert + E * row) of one chunk, and its tiles."""

    stretches: Int[Tensor, " N"]
    tiles: list[Tile]


def plan(
    groups: Groups,
    chosen: Int[Tensor, "B T A"],
    num_experts: int,
    kv_heads: int,
    starts: Int[Tensor, "B T"] | None = None,
) -> list[Chunk]:
    """Cut the sorted queries into chunks and tiles; `starts` as in `causal_attention.py`."""
    rows, t, active = chosen.shape
    device, queries = chosen.device, groups.order.numel()
    own = torch.arange(rows, device=device).view(-1, 1, 1) * num_experts + chosen  # B T A
    counts = torch.bincount(own.flatten(), minlength=rows * num_experts)  # M
    first = torch.full_like(counts, queries - 1)
    first.scatter_reduce_(0, own.flatten(), groups.inverse, "amin")
    order = counts.argsort(descending=True, stable=True)
    counts, first = counts[order, None], first[order, None]
    place = torch.arange(_up(int(counts[0]), FILL), device=device)
    read = first + torch.minimum(place, (counts - 1).clamp(min=0))
    write = torch.where(place < counts, read, queries)
    # A stretch without queries repeats another's, at position 0.
    at = torch.where(counts > 0, (groups.order // active % t)[read], 0)
    first_seen = None if starts is None else starts[order[:, None] // num_experts, at]
    size, lengths = max(CHUNK // kv_heads, 1), counts[:, 0].tolist()
    chunks = []
    for start in range(0, len(lengths), size):
        stretches = slice(start, start + size)
        tiles = []
        for left in range(0, lengths[start], TILE):
            tile = stretches, slice(left, min(left + TILE, _up(lengths[start], FILL)))
            seen, keys = int(at[tile].min()) + 1, min(_up(int(at[tile].max()) + 1, KEYS), t)
            hidden = None if first_seen is None else first_seen[tile]
            tiles.append(Tile(read[tile], write[tile], at[tile], hidden, seen, keys))
        if tiles:
            chunks.append(Chunk(order[stretches], tiles))
    return chunks


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


def gathered_attention(
    q: Float[Tensor, "Q KGC"],
    k: Float[Tensor, "M K T C"],
    v: Float[Tensor, "M K T C"],
    chunks: list[Chunk],
) -> Float[Tensor, "Q KGC"]:
    """Attend from every query to its stretch's keys up to it: softmax(q k^T / sqrt(C)) v."""
    y: Tensor = _Gathered.apply(q, k, v, chunks)  # type: ignore[no-untyped-call]
    return y


def _weigh(rows: Tensor, keys: Tensor, tile: Tile) -> Tensor:
    scores = torch.bmm(rows, keys.mT)
    n, r = tile.read.shape
    places = torch.arange(tile.masked_from, tile.keys, device=rows.device)
    future = places > tile.positions[..., None]  # N R places
    late = scores.view(n, -1, r, tile.keys)[..., tile.masked_from :]  # N K*G R places
    late.masked_fill_(future.unsqueeze(1), float("-inf"))
    if tile.starts is not None:
        hidden = torch.arange(tile.keys, device=rows.device) < tile.starts[..., None]  # N R keys
        scores.view(n, -1, r, tile.keys).masked_fill_(hidden.unsqueeze(1), float("-inf"))
    return torch.softmax(scores, -1, out=scores)  # summed in float32 inside


def _rows(x: Tensor, index: Tensor, kv: int, c: int) -> Tensor:
    """Gather (N R) rows of heads (K G C) as (N*K, G*R, C)."""
    n, r = index.shape
    heads = x.index_select(0, index.flatten()).view(n, r, kv, -1, c)
    return heads.permute(0, 2, 3, 1, 4).reshape(n * kv, -1, c)


def _back(y: Tensor, tile: Tile, kv: int) -> Tensor:
    n, r = tile.read.shape
    return y.view(n, kv, -1, r, y.shape[-1]).permute(0, 3, 1, 2, 4).reshape(n * r, -1)


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, chunks: list[Chunk]) -> Tensor:
        kv, t, c = k.shape[1:]
        y = q.new_zeros(q.shape[0] + 1, q.shape[1])  # the last row takes what nobody reads
        kept: list[Tensor] = []
        for stretches, tiles in chunks:
            keys, values = (x.index_select(0, stretches).flatten(0, 1) for x in (k, v))
            for tile in tiles:
                rows = _rows(q, tile.read, kv, c).mul_(c**-0.5)
                weights = _weigh(rows, keys[:, : tile.keys], tile)
                out = torch.bmm(weights, values[:, : tile.keys])
                y.index_copy_(0, tile.write.flatten(), _back(out, tile, kv))
                kept += (rows, weights) if t <= KEPT_UP_TO else (rows,)
        ctx.save_for_backward(k, v, *kept)
        ctx.chunks = chunks
        return y[:-1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        k, v, *kept = ctx.saved_tensors
        kv, t, c = k.shape[1:]
        grad = torch.cat((grads[0], grads[0].new_zeros(1, grads[0].shape[1])))
        dq = torch.zeros_like(grad)
        dk, dv = torch.zeros_like(k), torch.zeros_like(v)
        left = iter(kept)
        for stretches, tiles in ctx.chunks:
            keys, values = (x.index_select(0, stretches).flatten(0, 1) for x in (k, v))
            dkeys, dvalues = (
                torch.zeros(keys.shape, dtype=torch.float32, device=k.device) for _ in range(2)
            )
            for tile in tiles:
                rows = next(left)
                again = t > KEPT_UP_TO
                weights = _weigh(rows, keys[:, : tile.keys], tile) if again else next(left)
                dy = _rows(grad, tile.write, kv, c)
                dweights = torch.bmm(dy, values[:, : tile.keys].mT)
                dscores = torch._softmax_backward_data(dweights, weights, -1, weights.dtype)
                out = torch.bmm(dscores, keys[:, : tile.keys])
                dq.index_copy_(0, tile.write.flatten(), _back(out, tile, kv))
                dkeys[:, : tile.keys] += torch.bmm(dscores.mT, rows)
                dvalues[:, : tile.keys] += torch.bmm(weights.mT, dy)
            shape = (-1, kv, t, c)
            dk.index_copy_(0, stretches, dkeys.to(k.dtype).view(shape))
            dv.index_copy_(0, stretches, dvalues.to(v.dtype).view(shape))
        return dq[:-1].mul_(c**-0.5), dk, dv, None
