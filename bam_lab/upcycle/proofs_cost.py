"""Analytic cost against the built model: parameters counted, FLOPs traced."""

from typing import Any

from torch import Tensor

from bam_lab.cost.flops import BLOCK, per_token
from bam_lab.cost.params import count
from bam_lab.model.trace import traced_flops
from bam_lab.model.transformer import Transformer


def costs(model: Transformer, rows: Tensor) -> dict[str, Any]:
    """Return parameters and FLOPs of `rows` [N, T+1] by formula, beside what was built and ran.

    `model_forward` and `model_training` are what the mathematics needs; they have no trace.
    """
    tokens, targets = rows[:, :-1], rows[:, 1:]
    n, length = tokens.numel(), tokens.shape[1]
    flops = per_token(model.spec, model.method, model.num_experts, length)
    params = count(model.spec, model.method, model.num_experts).total
    facts: dict[str, Any] = {
        "parameters": _fact(params, sum(p.numel() for p in model.parameters()))
    }
    for name, formula, training in (
        ("executed_forward", flops.executed_forward, False),
        ("executed_training", flops.executed_training, True),
    ):
        traced = traced_flops(model, tokens, targets, training=training)
        # A token's FLOPs are rounded to a whole number where attention's mean is not one.
        facts[name] = _fact(n * formula, traced, off=n if length % BLOCK else 0)
    return facts | {
        "model_forward": n * flops.model_forward,
        "model_training": n * flops.model_training,
    }


def _fact(formula: int, model: int, off: int = 0) -> dict[str, Any]:
    return {"formula": formula, "model": model, "holds": abs(formula - model) <= off}
