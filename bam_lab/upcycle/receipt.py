"""The step-0 receipt: what is proved about a model before it is trained.

`prove` returns plain data:
- `coverage`: tensors by the origin that made them, and whether each is what that origin makes.
- `step0_nats`: domain -> model name -> nats per token, for the mixture and each dense model.
- `gate_sum`: router -> mean over tokens of the sum of its gates, beside `predicted`. It is the
  factor on the layer's output at step 0 if the experts were equal: 1 where gates are renormalised
  or soft; about top_k / num_experts for softmax-then-top-k under near-uniform routers.
- `routing`: router -> `entropy` of its softmax in nats, `load` (share of tokens sent to each
  expert), `mean_gates`, and `dropped` (share of tokens that no expert takes), in a training pass.
- `router_gradients`, `gradients`, `position_gradients` (learned positions only): what the
  language-model loss alone reaches.
- `laws`: causality and batch invariance under both rules; document invariance too where attention
  stays inside documents.
- `identities`: copies, permutation, one expert.
- `cost`: parameters and FLOPs by formula against the model.

All in float32, whatever training uses.
"""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from bam_lab.model.losses import token_nats
from bam_lab.model.router import Routing
from bam_lab.model.transformer import Transformer
from bam_lab.spec.methods import BAMMethod, MethodSpec
from bam_lab.spec.routers import RouterSpec, SoftRouter, layer_router, predicted_gate_sum
from bam_lab.upcycle.probe import opinionated, perturbed, training_pass
from bam_lab.upcycle.proofs_cost import costs
from bam_lab.upcycle.proofs_gradients import position_facts, reach, router_facts
from bam_lab.upcycle.proofs_laws import laws
from bam_lab.upcycle.proofs_origins import coverage, identities

Named = Sequence[tuple[str, Transformer]]


def prove(model: Transformer, sources: Named, windows: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the facts above; `record/proofs.py` says what they prove.

    Args:
        model: a dense model or a mixture; untrained where its origins are to be compared.
        sources: the dense models it was made of, by name, in router-column order; none where its
            origins are not to be compared.
        windows: domain -> token windows [N, T+1]; at least two in all.
    """
    rows = torch.cat([part[:2] for part in windows.values()])
    # Experts that differ, and routers that choose: what is proved about them is not proved of two
    # equal ones.
    distinct = perturbed(model)
    facts: dict[str, Any] = {
        "coverage": coverage(model, [source.state_dict() for _, source in sources]),
        "step0_nats": {
            domain: {name: _nats(m, part) for name, m in (("mixture", model), *sources)}
            for domain, part in windows.items()
        },
    }
    if model.num_experts > 1:
        facts["gate_sum"] = _gate_sums(model, rows)
        facts["routing"] = _routing(model, rows)
        facts["router_gradients"] = router_facts(model, distinct, rows)
    probe = opinionated(distinct)
    facts["gradients"] = reach(probe, rows)
    if model.spec.positions == "learned":
        facts["position_gradients"] = position_facts(probe, rows)
    facts["laws"] = laws(probe, rows)
    if model.num_experts > 1:
        facts["identities"] = identities(probe, rows)
    facts["cost"] = costs(model, rows)
    return facts


@torch.no_grad()
def _nats(model: Transformer, windows: Tensor) -> float:
    hidden = model(windows[:, :-1]).hidden
    return float(token_nats(hidden, model.lm_head_weight, windows[:, 1:]).mean())


@torch.no_grad()
def _gate_sums(model: Transformer, rows: Tensor) -> dict[str, Any]:
    routings = _routings(model, rows, training=False)
    # A router is a row of normal weights on a normed input, which has length sqrt(dim).
    logit_std = getattr(model.method, "router_init_std", 0.0) * sqrt(model.spec.dim)
    first = next((name for name in routings if name.endswith(".ffn")), "")
    return {
        name: {
            "measured": float(routing.gates.sum(-1).mean()),
            "predicted": predicted_gate_sum(
                _router_of(model.method, name, name == first), model.num_experts, logit_std
            ),
        }
        for name, routing in routings.items()
    }


@torch.no_grad()
def _routing(model: Transformer, rows: Tensor) -> dict[str, Any]:
    return {
        name: _describe(routing) for name, routing in _routings(model, rows, training=True).items()
    }


def _describe(routing: Routing) -> dict[str, Any]:
    gates = routing.gates.flatten(0, -2)  # places, experts
    logs = routing.logits.log_softmax(-1)
    sent = gates > 0
    return {
        "entropy": float(-(logs.exp() * logs).sum(-1).mean()),
        "load": sent.float().mean(0).tolist(),
        "mean_gates": gates.mean(0).tolist(),
        "dropped": float((~sent.any(-1)).float().mean()),
    }


def _routings(model: Transformer, rows: Tensor, *, training: bool) -> dict[str, Routing]:
    """Return module -> its routing, of all layers."""
    output = model(rows[:, :-1], training_pass(0) if training else None)
    return {
        f"layers.{i}.{part}": routing
        for i, layer in enumerate(output.routings)
        for part, routing in layer._asdict().items()
        if routing is not None
    }


def _router_of(method: MethodSpec, module: str, is_first: bool) -> RouterSpec:
    """Return how a module's experts are weighed; methods without a choice merge all of them."""
    if module.endswith(".attention"):
        assert isinstance(method, BAMMethod)
        return method.attention_router
    soft = SoftRouter(score="softmax", select="all")
    return layer_router(getattr(method, "ffn_router", soft), is_first)
