"""Routing: a linear router's logits, what it chose, and the gates that weight it.

One function a rule: the two orders of the papers' gates (BAM, arXiv:2408.08274 §3: softmax, then
top-k, the rest of the probability lost; BTX, arXiv:2403.07816 §3: top-k, then softmax, gates sum to
1), soft routing, ReLU gates, sampling, experts that choose, and a hash. `spec/routers.py` describes
them; where a rule differs between training and inference, a `Draw` marks training.
Logits and gates are float32: bf16 would tie logits that differ by less than 0.4% and pick experts
by their number.

Shapes: B batch, T tokens, N tokens that compete, D dim, E experts, A active experts, V vocab.
"""

import math
from typing import NamedTuple, assert_never

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bam_lab.errors import SpecError
from bam_lab.model.context import Draw
from bam_lab.spec.router_rules import alone
from bam_lab.spec.routers import (
    ExpertChoiceRouter,
    HashRouter,
    ReLURouter,
    RouterSpec,
    SampleRouter,
    SoftRouter,
    TopKRouter,
)

_TINY = 1e-30  # a token that no expert chose keeps gates of 0
_CERTAIN = 1e4  # a difference of logits whose softmax is exactly 1 and 0


class Routing(NamedTuple):
    """Hold one router's decisions; `gates` is zero where `chosen` does not name the expert.

    T counts what is decided for: tokens, or the segments of `lory.py`.

    Attributes:
        logits: for a hash, which has none, those of its certain choice.
        kept: which choices are computed, where some are not: a capacity limit dropped them, or
            `chosen` names all experts and these are the ones that chose the token, or whose gate
            is not 0. None: all.
    """

    logits: Float[Tensor, "B T E"]
    gates: Float[Tensor, "B T E"]
    chosen: Int[Tensor, "B T A"]
    kept: Bool[Tensor, "B T A"] | None = None


def check_router(router: RouterSpec, num_experts: int) -> None:
    """Refuse a router that cannot choose or cannot learn, or a setting of it without effect.

    Raises:
        SpecError: every such problem.
    """
    problems = [f"router.{'.'.join(keys)} {text}" for keys, text in alone(router, num_experts)]
    if problems:
        raise SpecError(problems)


def route(
    x: Float[Tensor, "B T D"],
    weight: Float[Tensor, "E D"],
    router: RouterSpec,
    draw: Draw | None = None,
    bias: Float[Tensor, " E"] | None = None,
) -> Routing:
    """Route every token of `x` (float32, as the norm left it); `draw` marks a training pass.

    `bias` is what top-k adds to the scores that choose.
    """
    with torch.autocast(x.device.type, enabled=False):
        logits = F.linear(x.float(), weight.float())  # B T E
    return select(logits, router, draw, bias)


def select(
    logits: Float[Tensor, "B T E"],
    router: RouterSpec,
    draw: Draw | None = None,
    bias: Float[Tensor, " E"] | None = None,
) -> Routing:
    """Choose experts and weigh them by logits of tokens, or of segments."""
    match router:
        case SoftRouter():
            return Routing(logits, logits.softmax(-1), everyone(logits))
        case ReLURouter():
            gates = logits.relu()
            return Routing(logits, gates, everyone(logits), gates > 0)
        case TopKRouter(capacity_factor=float(factor)) if draw is not None:
            return limit(top_k(logits, router.top_k, router.renormalize, bias), factor)
        case TopKRouter():
            return top_k(logits, router.top_k, router.renormalize, bias)
        case SampleRouter():
            return sample(logits, router, draw)
        case ExpertChoiceRouter() if draw is None:
            return top_k(logits, router.inference_top_k, router.renormalize)
        case ExpertChoiceRouter():
            return expert_choice(logits, router)
        case HashRouter():
            raise AssertionError("a hash has no weight: route_by_hash")
        case _:
            assert_never(router)


def top_k(
    logits: Float[Tensor, "B T E"],
    count: int,
    renormalize: bool,
    bias: Float[Tensor, " E"] | None = None,
) -> Routing:
    """Send each token to the `count` experts of the largest logits.

    With a bias, of the largest probability and bias together; gates do without it.
    """
    if bias is not None:
        scores = logits.softmax(-1)
        chosen = (scores + bias).topk(count, dim=-1).indices
        values = (logits if renormalize else scores).gather(-1, chosen)
        values = values.softmax(-1) if renormalize else values
    elif renormalize:
        best, chosen = logits.topk(count, dim=-1)
        values = best.softmax(-1)
    else:
        values, chosen = logits.softmax(-1).topk(count, dim=-1)
    return with_gates(logits, chosen, values)


def limit(routing: Routing, capacity_factor: float) -> Routing:
    """Drop what is more than ceil(capacity_factor * B * T / E) choices of one expert.

    Choices are taken row by row in order of position, so that what a token gets depends on no later
    token of its row.
    """
    experts = routing.gates.shape[-1]
    capacity = math.ceil(capacity_factor * routing.chosen[..., 0].numel() / experts)
    sent = F.one_hot(routing.chosen.flatten(), experts)  # B*T*A E
    # How many choices each choice's expert has had with it.
    place = sent.cumsum(0).gather(1, routing.chosen.view(-1, 1)).view_as(routing.chosen)
    kept = place <= capacity
    values = routing.gates.gather(-1, routing.chosen).where(kept, 0.0)
    return with_gates(routing.logits, routing.chosen, values)._replace(kept=kept)


def sample(logits: Float[Tensor, "B T E"], router: SampleRouter, draw: Draw | None) -> Routing:
    """Send each token to one expert: in training sampled by Gumbel noise, else the likeliest."""
    if draw is None:
        chosen = logits.argmax(-1, keepdim=True)
        return with_gates(logits, chosen, torch.ones_like(logits[..., :1]))
    noise = -torch.empty_like(logits).exponential_(generator=draw.generator).log()
    temperature = max(router.min_temperature, math.exp(-router.anneal_rate * draw.step))
    value, chosen = ((logits + noise) / temperature).softmax(-1).topk(1, dim=-1)
    if router.estimator == "straight_through":
        value = value + (1 - value).detach()
    return with_gates(logits, chosen, value)


def expert_choice(logits: Float[Tensor, "B T E"], router: ExpertChoiceRouter) -> Routing:
    """Let each expert take its likeliest tokens, of the batch or of each row."""
    scores = logits.softmax(-1)
    groups = scores if router.group == "sequence" else scores.flatten(0, 1).unsqueeze(0)
    kept = chosen_by_experts(groups, router.capacity_factor).view_as(scores)
    gates = scores.where(kept, 0.0)
    if router.renormalize:
        gates = gates / gates.sum(-1, keepdim=True).clamp_min(_TINY)
    return Routing(logits, gates, everyone(logits), kept)


def chosen_by_experts(
    scores: Float[Tensor, "*G N E"], capacity_factor: float
) -> Bool[Tensor, "*G N E"]:
    """Mark the ceil(capacity_factor * N / E) places of each group with each expert's top scores."""
    places, experts = scores.shape[-2:]
    capacity = min(math.ceil(capacity_factor * places / experts), places)
    taken = scores.detach().topk(capacity, dim=-2).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-2, taken, True)


def route_by_hash(
    tokens: Int[Tensor, "B T"], table: Int[Tensor, " V"], num_experts: int
) -> Routing:
    """Send each token to the expert that the table names for its id, with gate 1."""
    chosen = table[tokens].unsqueeze(-1)
    gates = F.one_hot(chosen.squeeze(-1), num_experts).float()
    return Routing((gates - 1) * _CERTAIN, gates, chosen)


def with_gates(
    logits: Float[Tensor, "B T E"], chosen: Int[Tensor, "B T A"], values: Float[Tensor, "B T A"]
) -> Routing:
    """Return the routing whose gates are `values` at the chosen experts and zero elsewhere."""
    return Routing(logits, torch.zeros_like(logits).scatter(-1, chosen, values), chosen)


def everyone(logits: Float[Tensor, "B T E"]) -> Int[Tensor, "B T E"]:
    """Return a choice of all experts at every place."""
    return torch.arange(logits.shape[-1], device=logits.device).expand(logits.shape)
