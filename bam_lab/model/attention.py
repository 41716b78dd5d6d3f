"""Attention: dense, and attention experts under soft and top-k routing.

What is unusual:
- soft routing (BAM, arXiv:2408.08274 §4) runs all experts at once: one projection for the queries,
  keys and values of all, one attention call with experts as further heads, and the gates folded
  into one output projection over the concatenation. `attention_reference.py` is the plain loop.
- with shared keys and values, the experts' query heads share the key-value heads as in
  grouped-query attention, so E * H query heads read K heads.
- top-k with shared keys and values computes A query slots a token, each by its chosen expert.
- top-k with keys and values per expert gathers each expert's queries (`gathered_attention.py`):
  every expert needs keys and values at every earlier token, whoever chose it, but queries and
  outputs only where it is chosen.

Matrix products executed for N tokens (out x in, multiply-adds N * out * in): queries E*H*C x D
(top-k: A*H*C x D), keys and values 2*K*C x D (per expert: E times), attention as in
`causal_attention.py` over H heads (soft: E*H; top-k shared: A*H; top-k per expert: as in
`gathered_attention.py`), output D x E*H*C (top-k: A times D x H*C), router E x D.

Shapes: B batch, T tokens, D dim, H heads, K key-value heads, G = H / K, C head_dim, E experts,
A active.
"""

from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bam_lab.model.causal_attention import causal_attention
from bam_lab.model.context import Cached, Context, LayerCache
from bam_lab.model.gathered_attention import gathered_attention, plan
from bam_lab.model.grouped import Groups, combine, group, grouped_linear
from bam_lab.model.layers import project, rotate, sum_experts, to_compute
from bam_lab.model.router import Routing, check_router, route
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.routers import RouterSpec, SoftRouter


class Attention(nn.Module):
    """Attend causally with one set of heads."""

    def __init__(self, spec: ModelSpec):
        """Allocate the weights, uninitialised."""
        super().__init__()
        self.spec = spec
        queries, keys = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        self.query = nn.Parameter(torch.empty(queries, spec.dim))
        self.key = nn.Parameter(torch.empty(keys, spec.dim))
        self.value = nn.Parameter(torch.empty(keys, spec.dim))
        self.output = nn.Parameter(torch.empty(spec.dim, queries))

    def forward(
        self, x: Float[Tensor, "B T D"], normed: Float[Tensor, "B T D"], context: Context
    ) -> tuple[Float[Tensor, "B T D"], None]:
        """Map `x` (in compute precision; `normed` is the same in float32, for routers)."""
        q, k, v = project(x, self.query, self.key, self.value)
        y = attend(q.unsqueeze(2), k, v, context, self.spec)  # B T 1 H*C
        return F.linear(y.squeeze(2), self.output), None


class AttentionExperts(nn.Module):
    """Attend with several experts, weighted by a router of their own."""

    def __init__(
        self,
        spec: ModelSpec,
        router: RouterSpec,
        kv: Literal["per_expert", "shared"],
        num_experts: int,
    ):
        """Allocate the weights, uninitialised."""
        super().__init__()
        check_router(router, num_experts)
        self.spec, self.router_spec, self.kv = spec, router, kv
        self.gathers = kv == "per_expert" and not isinstance(router, SoftRouter)
        queries, keys = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        own = (num_experts,) if kv == "per_expert" else ()
        self.router = nn.Parameter(torch.empty(num_experts, spec.dim))
        self.query = nn.Parameter(torch.empty(num_experts, queries, spec.dim))
        self.key = nn.Parameter(torch.empty(*own, keys, spec.dim))
        self.value = nn.Parameter(torch.empty(*own, keys, spec.dim))
        self.output = nn.Parameter(torch.empty(num_experts, spec.dim, queries))

    def forward(
        self, x: Float[Tensor, "B T D"], normed: Float[Tensor, "B T D"], context: Context
    ) -> tuple[Float[Tensor, "B T D"], Routing]:
        """Map `x` (in compute precision; `normed` is the same in float32, for the router)."""
        routing = route(normed, self.router, self.router_spec)
        if isinstance(self.router_spec, SoftRouter):
            return self._all(x, routing.gates, context), routing
        return self._chosen(x, routing, context), routing

    def _all(self, x: Tensor, gates: Tensor, context: Context) -> Tensor:
        b, t, _ = x.shape
        experts = self.query.shape[0]
        q, k, v = project(x, self.query, self.key, self.value)
        y = attend(q.view(b, t, experts, -1), k, v, context, self.spec)  # B T E H*C
        # Float32 gates times bf16 outputs, rounded once.
        return sum_experts(to_compute(y * gates.unsqueeze(-1)), self.output)

    def _chosen(self, x: Tensor, routing: Routing, context: Context) -> Tensor:
        b, t, d = x.shape
        experts, active = self.query.shape[0], routing.chosen.shape[-1]
        groups = group(routing.chosen.flatten(0, 1), experts, x.dtype)
        tokens = x.flatten(0, 1).index_select(0, groups.order // active)
        q = grouped_linear(tokens, self.query, groups)
        k, v = project(x, self.key, self.value)
        whole = context.cached is None or context.cached.prompt
        if self.gathers and whole:
            y = self._gathered(q, k, v, routing, groups, context)
        else:
            q = q.index_select(0, groups.inverse).view(b, t, active, -1)
            sets = routing.chosen if self.gathers else None
            y = attend(q, k, v, context, self.spec, sets).flatten(0, 2)  # N*A H*C
            y = y.index_select(0, groups.order)
        y = grouped_linear(y, self.output, groups)
        gates = routing.gates.gather(-1, routing.chosen).flatten(0, 1)
        return combine(y, gates, groups).view(b, t, d)

    def _gathered(
        self, q: Tensor, k: Tensor, v: Tensor, routing: Routing, groups: Groups, context: Context
    ) -> Tensor:
        """Attend with queries in sorted order (Q H*C), and return them so."""
        b, t, active = routing.chosen.shape
        heads, c, rope = self.spec.num_kv_heads, self.spec.head_dim, context.rope
        places = groups.order // active % t
        turn = None if rope is None else (rope[0][places], rope[1][places])
        q = rotate(q.view(1, q.shape[0], -1, c), turn).view_as(q)
        k = rotate(k.view(b, t, -1, c), rope).transpose(1, 2)
        v = v.view(b, t, -1, c).transpose(1, 2)
        if context.cached is not None:
            _hold(context.cached.layer, k, v)
        k, v = (x.reshape(-1, heads, t, c) for x in (k, v))
        chunks = plan(groups, routing.chosen, self.query.shape[0], heads, context.starts)
        return gathered_attention(q, k, v, chunks)


def attend(
    q: Float[Tensor, "B T S HC"],
    k: Float[Tensor, "B T KC"],
    v: Float[Tensor, "B T KC"],
    context: Context,
    spec: ModelSpec,
    chosen: Int[Tensor, "B T S"] | None = None,
) -> Float[Tensor, "B T S HC"]:
    """Attend with S sets of H query heads.

    Keys and values hold either K heads, shared by all sets, or S * K heads, K for each set; or
    they are those of every expert, of which a step of generation takes the `chosen` S.
    """
    b, t, sets, _ = q.shape
    head_dim, cached = spec.head_dim, context.cached
    group_size = spec.num_heads // spec.num_kv_heads
    q = rotate(q.reshape(b, t, -1, head_dim), context.rope)
    k = rotate(k.reshape(b, t, -1, head_dim), context.rope).transpose(1, 2)
    v = v.reshape(b, t, -1, head_dim).transpose(1, 2)
    over = partial(causal_attention, starts=context.starts)
    if cached is not None and cached.prompt:
        _hold(cached.layer, k, v)
    elif cached is not None:
        k, v = _held(cached, k, v, chosen, spec.num_kv_heads)
        over = partial(step_attention, lengths=cached.lengths + 1, starts=context.starts)
    kv_heads = k.shape[1]
    if kv_heads == spec.num_kv_heads:  # query heads stand as (set, K, G): sets join the groups
        q = q.view(b, t, sets, kv_heads, group_size, head_dim).permute(0, 3, 2, 4, 1, 5)
        y = over(q.flatten(2, 3), k, v)  # B K S*G T C
        y = y.view(b, kv_heads, sets, group_size, t, head_dim).permute(0, 4, 2, 1, 3, 5)
    else:
        q = q.view(b, t, kv_heads, group_size, head_dim).permute(0, 2, 3, 1, 4)
        y = over(q, k, v).permute(0, 3, 1, 2, 4)  # B T S*K G C
    return y.reshape(b, t, sets, -1)


def step_attention(
    q: Float[Tensor, "B K G 1 C"],
    k: Float[Tensor, "B K L C"],
    v: Float[Tensor, "B K L C"],
    lengths: Int[Tensor, " B"],
    starts: Int[Tensor, "B 1"] | None = None,
) -> Float[Tensor, "B K G 1 C"]:
    """Attend from one query a row to the row's first `lengths` keys, from `starts` on."""
    rows = q.squeeze(3) * q.shape[-1] ** -0.5
    scores = torch.matmul(rows, k.mT)  # B K G L
    places = torch.arange(k.shape[2], device=k.device)
    hidden = places >= lengths[:, None]  # B L
    if starts is not None:
        hidden |= places < starts
    hidden = hidden[:, None, None]
    weights = scores.masked_fill_(hidden, float("-inf")).softmax(-1)  # summed in float32 inside
    return torch.matmul(weights, v).unsqueeze(3)


def _hold(layer: LayerCache, k: Tensor, v: Tensor) -> None:
    """Keep a prompt's keys and values (B K T C), with room for those to come."""
    b, heads, t, c = k.shape
    layer.keys, layer.values = (x.new_zeros(b, heads, layer.room, c) for x in (k, v))
    layer.keys[:, :, :t], layer.values[:, :, :t] = k, v


def _held(
    cached: Cached, k: Tensor, v: Tensor, chosen: Tensor | None, kv_heads: int
) -> tuple[Tensor, Tensor]:
    """Keep one token's keys and values; return all of the cache, or the chosen experts' part."""
    keys, values = cached.layer.keys, cached.layer.values
    assert keys is not None and values is not None
    b, end = len(k), int(cached.lengths.max()) + 1
    rows = torch.arange(b, device=k.device)
    keys[rows, :, cached.lengths], values[rows, :, cached.lengths] = k[:, :, 0], v[:, :, 0]
    keys, values = keys[:, :, :end], values[:, :, :end]
    if chosen is None:
        return keys, values
    own = (x.view(b, -1, kv_heads, end, x.shape[-1]) for x in (keys, values))  # B E K L C
    picked, picked_values = (x[rows[:, None], chosen[:, 0]].flatten(1, 2) for x in own)
    return picked, picked_values
