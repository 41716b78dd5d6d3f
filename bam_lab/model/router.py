"""Routing: a linear router's logits, what it chose, and the gates that weight it.

The two orders of the papers' gates (BAM, arXiv:2408.08274 §3: softmax, then top-k, the rest of the
probability lost; BTX, arXiv:2403.07816 §3: top-k, then softmax, gates sum to 1) and soft routing.
Logits and gates are float32: bf16 would tie logits that differ by less than 0.4% and pick experts
by their number.

Shapes: B batch, T tokens, D dim, E experts, A active experts.
"""

from typing import NamedTuple, assert_never

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from bam_lab.errors import SpecError
from bam_lab.spec.routers import RouterSpec, SoftRouter, TopKRouter


class Routing(NamedTuple):
    """Hold one router's decisions; `gates` is zero where `chosen` does not name the expert.

    T counts what is decided for: tokens, or the segments of `lory.py`.
    """

    logits: Float[Tensor, "B T E"]
    gates: Float[Tensor, "B T E"]
    chosen: Int[Tensor, "B T A"]


def check_router(router: RouterSpec, num_experts: int) -> None:
    """Refuse a router that cannot choose or cannot learn.

    Raises:
        SpecError: top_k above the number of experts, or top-1 with renormalised gates: that gate is
            the constant 1, so the language-model loss gives the router no gradient.
    """
    if isinstance(router, SoftRouter):
        return
    if router.top_k > num_experts:
        raise SpecError(f"router.top_k must be at most {num_experts} experts, got {router.top_k}")
    if router.top_k == 1 and router.renormalize:
        raise SpecError(
            "router.renormalize must be false for top_k 1, got true: the gate would be the "
            "constant 1 and the router would get no gradient. Set renormalize: false."
        )


def route(x: Float[Tensor, "B T D"], weight: Float[Tensor, "E D"], router: RouterSpec) -> Routing:
    """Route every token of `x` (float32, as the norm left it)."""
    with torch.autocast(x.device.type, enabled=False):
        logits = F.linear(x.float(), weight.float())  # B T E
    match router:
        case SoftRouter():
            chosen = torch.arange(weight.shape[0], device=x.device).expand(logits.shape)
            return Routing(logits, logits.softmax(-1), chosen)
        case TopKRouter(top_k=top_k, renormalize=True):
            best, chosen = logits.topk(top_k, dim=-1)
            values = best.softmax(-1)
        case TopKRouter(top_k=top_k):
            values, chosen = logits.softmax(-1).topk(top_k, dim=-1)
        case _:
            assert_never(router)
    return Routing(logits, torch.zeros_like(logits).scatter(-1, chosen, values), chosen)
