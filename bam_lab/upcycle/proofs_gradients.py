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


def gradient_norms(model: Transformer, rows: Tensor, names: list[str]) -> dict[str, float]:
    """Return the norm of each named parameter's gradient, by the rule of training."""
    parameters = dict(model.named_parameters())
    output = model(rows[:, :-1], training_pass())
    loss = next_token_loss(output.hidden, model.lm_head_weight, rows[:, 1:])
    wanted = [parameters[name] for name in names]
    if not wanted:
        return {}
    gradients = torch.autograd.grad(loss, wanted, allow_unused=True)
    return {
        name: 0.0 if gradient is None else float(gradient.norm())
        for name, gradient in zip(names, gradients, strict=True)
    }
