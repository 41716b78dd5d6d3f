"""What the language-model loss alone teaches: every tensor of a model, and each router of it."""

from typing import Any

import torch
from torch import Tensor

from bam_lab.model.losses import next_token_loss
from bam_lab.model.transformer import Transformer
from bam_lab.upcycle.probe import training_pass

_SYMMETRIC = 1e-4  # of the gradient on distinct experts; rounding leaves up to 6e-7


def router_facts(model: Transformer, distinct: Transformer, rows: Tensor) -> dict[str, Any]:
    """Return router -> its gradient norm, here and on the copy `distinct`, whose experts differ.

    `zero_by_symmetry` marks a norm of zero that distinct experts turn into a positive one: such a
    router starts to learn once experts differ. `learns`: the gradient on distinct experts is
    positive.
    """
    routers = [n for n, p in model.named_parameters() if n.endswith(".router") and p.requires_grad]
    norms, others = (gradient_norms(m, rows, routers) for m in (model, distinct))
    return {
        name: {
            "norm": norms[name],
            "norm_on_distinct_experts": others[name],
            "zero_by_symmetry": norms[name] <= _SYMMETRIC * others[name] and others[name] > 0,
            "learns": others[name] > 0,
        }
        for name in routers
    }


def reach(probe: Transformer, rows: Tensor) -> dict[str, Any]:
    """Return how many trained tensors the language-model loss reaches, and which it does not."""
    names = [name for name, parameter in probe.named_parameters() if parameter.requires_grad]
    norms = gradient_norms(probe, rows, names)
    return {"tensors": len(names), "without": [name for name in names if not norms[name] > 0]}


def position_facts(probe: Transformer, rows: Tensor) -> dict[str, Any]:
    """Return what the language-model loss teaches learned positions (question B15).

    Under a first segment that is routed by its own mean, without gradient to that decision, its
    positions could be thought to learn nothing. `first_segment` and `later`: mean norm of the
    gradient of one position; `without`: how many get none.
    """
    length, segment = rows.shape[1] - 1, getattr(probe.method, "segment_len", None)
    (gradient,) = _gradients(probe, rows, [probe.position])
    assert gradient is not None
    norms = gradient[:length].norm(dim=1)
    facts: dict[str, Any] = {"without": int((norms == 0).sum())}
    if segment is None or segment >= length:
        return facts | {"later": float(norms.mean())}
    first, later = norms[:segment].mean(), norms[segment:].mean()
    return facts | {"first_segment": float(first), "later": float(later)}


def gradient_norms(model: Transformer, rows: Tensor, names: list[str]) -> dict[str, float]:
    """Return the norm of each named parameter's gradient, by the rule of training."""
    parameters = dict(model.named_parameters())
    if not names:
        return {}
    gradients = _gradients(model, rows, [parameters[name] for name in names])
    return {
        name: 0.0 if gradient is None else float(gradient.norm())
        for name, gradient in zip(names, gradients, strict=True)
    }


def _gradients(model: Transformer, rows: Tensor, wanted: list[Tensor]) -> tuple[Tensor | None, ...]:
    output = model(rows[:, :-1], training_pass())
    loss = next_token_loss(output.hidden, model.lm_head_weight, rows[:, 1:])
    return torch.autograd.grad(loss, wanted, allow_unused=True)
