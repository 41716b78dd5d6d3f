"""The step-0 receipt: what is proved about an upcycled model before it is trained.

`receipt` returns plain data:
- `coverage`: tensors of the model by the origin that made them (`upcycle` refuses any gap).
- `step0_nats`: domain -> model name -> nats per token, for the mixture and each dense model.
- `gate_sum`: router -> mean over tokens of the sum of its gates, beside `predicted`. It is the
  factor on the layer's output at step 0 if the experts were equal: 1 where gates are renormalised
  or soft; about top_k / num_experts for softmax-then-top-k under near-uniform routers.
- `causality`, `batch_invariance`: the largest change of a logit that must not move, when a suffix
  or another row changes, and whether it is within `TOLERANCE`. Segment routing is tried where it
  could break, and `broken` names where it does: Lory's `own_mean` inside the first segment.
- `router_gradients`: router -> norm of the gradient of the language-model loss alone.
  `zero_by_symmetry` marks a norm of zero that distinct experts (here: a copy of the model, its
  experts perturbed) turn into a positive one; such a router starts to learn once experts differ.
  `learns` is the proof wanted: the gradient on distinct experts is positive.

All in float32, whatever training uses.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from bam_lab.model.losses import next_token_loss, token_nats
from bam_lab.model.router import Routing
from bam_lab.model.transformer import Transformer
from bam_lab.spec.experts import num_sources
from bam_lab.spec.methods import BAMMethod, DenseMethod, LoryMethod, MethodSpec
from bam_lab.spec.routers import RouterSpec, SoftRouter, TopKRouter
from bam_lab.upcycle.origins import EXPERT_OPS, Origin, origins

TOLERANCE = 1e-4
"""On logits of order 1; grouped rows are products of other sizes, which moves last digits."""
_SYMMETRIC = 1e-4  # of the gradient on distinct experts; rounding leaves up to 6e-7
_PERTURBATION = 0.02
_OPINION = 0.5  # deviation of a probe's router weights: logits of order 1


def receipt(
    mixture: Transformer, experts: Mapping[str, Transformer], domains: Mapping[str, Tensor]
) -> dict[str, Any]:
    """Return the facts above.

    Args:
        mixture: the upcycled model, untrained.
        experts: the dense models it was made of, by name, each once.
        domains: domain -> token windows [N, T+1]; at least two in all.
    """
    rows = torch.cat([windows[:2] for windows in domains.values()])
    facts = {
        "coverage": _coverage(mixture),
        "step0_nats": {
            domain: {name: _nats(model, windows) for name, model in _named(mixture, experts)}
            for domain, windows in domains.items()
        },
    }
    if mixture.num_experts > 1:
        facts["gate_sum"] = _gate_sums(mixture, rows)
        facts["router_gradients"] = _gradients(mixture, rows)
    return facts | {
        "causality": _causality(mixture, rows),
        "batch_invariance": _moved(mixture, rows, row_change(rows)),
    }


def suffix_change(rows: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Return rows with other tokens from `start` on, and where logits must not move."""
    tokens = rows[:, :-1]
    held = torch.ones_like(tokens, dtype=torch.bool)
    held[:, start:] = False
    return torch.where(held, tokens, tokens.flip(0, 1).roll(1, 1)), held


def row_change(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows of which all but the first are other text, and where logits must not move."""
    tokens = rows[:, :-1]
    held = torch.zeros_like(tokens, dtype=torch.bool)
    held[0] = True
    return torch.where(held, tokens, tokens.flip(1)), held


def router_gradients(model: Transformer, rows: Tensor) -> dict[str, float]:
    """Return each router's gradient norm from the language-model loss alone."""
    routers = {n: p for n, p in model.named_parameters() if n.endswith(".router")}
    output = model(rows[:, :-1])
    loss = next_token_loss(output.hidden, model.lm_head_weight, rows[:, 1:])
    gradients = torch.autograd.grad(loss, list(routers.values()), allow_unused=True)
    return {
        name: 0.0 if gradient is None else float(gradient.norm())
        for name, gradient in zip(routers, gradients, strict=True)
    }


def _causality(model: Transformer, rows: Tensor) -> dict[str, Any]:
    """Change the second half; under segment routing also around the first segment's border.

    Segments are tried on a copy whose experts differ and whose routers have opinions: experts that
    are equal at step 0 would hide that the choice between them looks ahead.
    """
    half = (rows.shape[1] - 1) // 2
    if not isinstance(model.method, LoryMethod):
        return _moved(model, rows, suffix_change(rows, half))
    length, probe = model.method.segment_len, _opinionated(_perturbed(model))
    starts = {
        "inside the first segment": max(length // 2, 1),
        "at the first border": length,
        "inside the second segment": length + max(length // 2, 1),
        "at the second half": half,
    }
    found = {place: _moved(probe, rows, suffix_change(rows, at)) for place, at in starts.items()}
    return {
        "max_logit_change": max(fact["max_logit_change"] for fact in found.values()),
        "holds": all(fact["holds"] for fact in found.values()),
        "broken": [place for place, fact in found.items() if not fact["holds"]],
    }


@torch.no_grad()
def _moved(model: Transformer, rows: Tensor, change: tuple[Tensor, Tensor]) -> dict[str, Any]:
    changed, held = change
    before, after = (model.logits(model(t).hidden)[held] for t in (rows[:, :-1], changed))
    worst = float((before - after).abs().max())
    return {"max_logit_change": worst, "holds": worst <= TOLERANCE}


def _named(
    mixture: Transformer, experts: Mapping[str, Transformer]
) -> Iterator[tuple[str, Transformer]]:
    yield "mixture", mixture
    yield from experts.items()


@torch.no_grad()
def _nats(model: Transformer, windows: Tensor) -> float:
    hidden = model(windows[:, :-1]).hidden
    return float(token_nats(hidden, model.lm_head_weight, windows[:, 1:]).mean())


def _coverage(model: Transformer) -> dict[str, Any]:
    table = _table(model)
    by_origin = Counter(origin.op for origin in table.values())
    return {"tensors": len(table), "by_origin": dict(by_origin)}


def _table(model: Transformer) -> dict[str, Origin]:
    names = [str(i) for i in range(num_sources(model.method, model.num_experts))]
    return origins(model.method, model.spec, names)


@torch.no_grad()
def _gate_sums(model: Transformer, rows: Tensor) -> dict[str, Any]:
    method = model.method
    routings: dict[str, tuple[Routing, RouterSpec]] = {}
    for i, layer in enumerate(model(rows[:, :-1]).routings):
        if layer.attention is not None and isinstance(method, BAMMethod):
            routings[f"layers.{i}.attention"] = layer.attention, method.attention_router
        if layer.ffn is not None:
            routings[f"layers.{i}.ffn"] = layer.ffn, _ffn_router(method)
    return {
        name: {
            "measured": float(routing.gates.sum(-1).mean()),
            "predicted": predicted_gate_sum(router, model.num_experts),
        }
        for name, (routing, router) in routings.items()
    }


def _ffn_router(method: MethodSpec) -> RouterSpec:
    """Return how FFN experts are weighed; Lory's merging takes all of them."""
    assert not isinstance(method, DenseMethod)
    if isinstance(method, LoryMethod):
        return SoftRouter(score="softmax", select="all")
    return method.ffn_router


def predicted_gate_sum(router: RouterSpec, num_experts: int) -> float:
    """Return the sum of gates that near-uniform routers give."""
    if isinstance(router, TopKRouter) and not router.renormalize:
        return router.top_k / num_experts
    return 1.0


def _gradients(model: Transformer, rows: Tensor) -> dict[str, Any]:
    norms = router_gradients(model, rows)
    distinct = router_gradients(_perturbed(model), rows)
    return {
        name: {
            "norm": norm,
            "norm_on_distinct_experts": distinct[name],
            "zero_by_symmetry": norm <= _SYMMETRIC * distinct[name] and distinct[name] > 0,
            "learns": distinct[name] > 0,
        }
        for name, norm in norms.items()
    }


def _perturbed(model: Transformer) -> Transformer:
    """Return a copy whose stacked experts differ, whatever they were."""
    copy = deepcopy(model)
    generator = torch.Generator().manual_seed(0)
    table = _table(model)
    with torch.no_grad():
        for name, parameter in copy.named_parameters():
            if table[name].op in EXPERT_OPS:
                noise = torch.empty_like(parameter).normal_(generator=generator)
                parameter.add_(noise, alpha=_PERTURBATION)
    return copy


@torch.no_grad()
def _opinionated(model: Transformer) -> Transformer:
    """Give every router of `model` weights that tell its inputs apart."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if name.endswith(".router"):
            parameter.normal_(std=_OPINION, generator=generator)
    return model
