"""Feed-forward layers: dense SwiGLU or GELU, and FFN experts under every token router.

Matrix products executed for N tokens: gate and up 2*F x D and down D x F (SwiGLU) once a token
when dense, once a kept choice under sparse routing (no padding), E times under soft routing, and
once more where an expert is shared; router E x D, none for a hash.

Shapes: B batch, T tokens, D dim, F ffn_dim, E experts, A active, V vocab.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from bam_lab.model.context import Context
from bam_lab.model.grouped import combine, group
from bam_lab.model.layers import gelu_ffn, project, sum_experts, swiglu, swiglu_stacks, to_compute
from bam_lab.model.router import Routing, check_router, route, route_by_hash
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.routers import HashRouter, RouterSpec, SoftRouter, TopKRouter


class FFN(nn.Module):
    """Hold one SwiGLU."""

    def __init__(self, spec: ModelSpec):
        """Allocate the weights, uninitialised."""
        super().__init__()
        self.gate = nn.Parameter(torch.empty(spec.ffn_dim, spec.dim))
        self.up = nn.Parameter(torch.empty(spec.ffn_dim, spec.dim))
        self.down = nn.Parameter(torch.empty(spec.dim, spec.ffn_dim))

    def forward(
        self, x: Float[Tensor, "B T D"], normed: Float[Tensor, "B T D"], context: Context
    ) -> tuple[Float[Tensor, "B T D"], None]:
        """Map `x` (in compute precision; `normed` is the same in float32, for routers)."""
        return swiglu(x, self.gate, self.up, self.down), None


class GELUFFN(nn.Module):
    """Hold one FFN without a gate."""

    def __init__(self, spec: ModelSpec):
        """Allocate the weights, uninitialised."""
        super().__init__()
        self.up = nn.Parameter(torch.empty(spec.ffn_dim, spec.dim))
        self.down = nn.Parameter(torch.empty(spec.dim, spec.ffn_dim))

    def forward(
        self, x: Float[Tensor, "B T D"], normed: Float[Tensor, "B T D"], context: Context
    ) -> tuple[Float[Tensor, "B T D"], None]:
        """Map `x` (in compute precision; `normed` is the same in float32, for routers)."""
        return gelu_ffn(x, self.up, self.down), None


class FFNExperts(nn.Module):
    """Hold E SwiGLUs, stacked, and their router: weights, or a table from token to expert.

    Attributes:
        shared: an FFN that every token uses beside them (`spec/mixtures.py`).
        bias: of each expert, where load is balanced by one; `balance.py` moves it.
    """

    hash: Tensor
    bias: Tensor | None

    def __init__(
        self, spec: ModelSpec, router: RouterSpec, num_experts: int, shared: FFN | None = None
    ):
        """Allocate the weights, uninitialised."""
        super().__init__()
        check_router(router, num_experts)
        self.router_spec = router
        if isinstance(router, HashRouter):
            self.register_buffer("hash", torch.zeros(spec.vocab_size, dtype=torch.long))
        else:
            self.router = nn.Parameter(torch.empty(num_experts, spec.dim))
        biased = isinstance(router, TopKRouter) and router.bias_rate is not None
        self.register_buffer("bias", torch.zeros(num_experts) if biased else None)
        self.gate, self.up, self.down = swiglu_stacks(spec, num_experts)
        self.shared = shared

    def forward(
        self, x: Float[Tensor, "B T D"], normed: Float[Tensor, "B T D"], context: Context
    ) -> tuple[Float[Tensor, "B T D"], Routing]:
        """Map `x` (in compute precision; `normed` is the same in float32, for the router)."""
        if isinstance(self.router_spec, HashRouter):
            routing = route_by_hash(context.tokens, self.hash, self.gate.shape[0])
        else:
            routing = route(normed, self.router, self.router_spec, context.draw, self.bias)
        soft = isinstance(self.router_spec, SoftRouter)
        y = self._all(x, routing.gates) if soft else self._chosen(x, routing)
        if self.shared is not None:
            y = y + self.shared(x, normed, context)[0]
        return y, routing

    def _all(self, x: Tensor, gates: Tensor) -> Tensor:
        gated, upped = project(x, self.gate, self.up)
        hidden = (F.silu(gated) * upped).view(*x.shape[:2], self.gate.shape[0], -1)  # B T E F
        return sum_experts(to_compute(hidden * gates.unsqueeze(-1)), self.down)

    def _chosen(self, x: Tensor, routing: Routing) -> Tensor:
        active = routing.chosen.shape[-1]
        kept = None if routing.kept is None else routing.kept.flatten(0, 1)
        groups = group(routing.chosen.flatten(0, 1), self.gate.shape[0], x.dtype, kept)
        tokens = x.flatten(0, 1).index_select(0, groups.order // active)
        weights = zip(self.gate, self.up, self.down, strict=True)
        parts = zip(torch.split(tokens, groups.sizes), weights, strict=True)
        y = torch.cat([swiglu(part, *own) for part, own in parts])
        gates = routing.gates.gather(-1, routing.chosen).flatten(0, 1)
        return combine(y, gates, groups).view_as(x)


def ffn_experts_reference(
    module: FFNExperts, x: Float[Tensor, "B T D"], gates: Float[Tensor, "B T E"]
) -> Float[Tensor, "B T D"]:
    """Run every expert on every token, weighted by its gate: the oracle of `FFNExperts`."""
    experts = zip(module.gate, module.up, module.down, strict=True)
    outputs = [(F.silu(x @ gate.T) * (x @ up.T)) @ down.T for gate, up, down in experts]
    return torch.einsum("ebtd,bte->btd", torch.stack(outputs), gates)
