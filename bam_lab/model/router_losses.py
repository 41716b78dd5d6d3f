"""What is added to the language-model loss for the routers: load balance, router z, ReLU gates' L1.

All in float32, as the routers' logits and gates are: a mean over thousands of tokens does not fit
8 bits.

Shapes: B batch, T tokens, E experts, G groups of rows.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, assert_never

import torch
from jaxtyping import Float
from torch import Tensor

from bam_lab.model.router import Routing
from bam_lab.model.transformer import Output
from bam_lab.spec.methods import (
    BAMMethod,
    BTXMethod,
    MethodSpec,
    SegmentMoEMethod,
    SparseUpcyclingMethod,
)
from bam_lab.spec.routers import BalanceLoss, ReLURouter, has_softmax, is_balanced

_Routed = BTXMethod | BAMMethod | SparseUpcyclingMethod | SegmentMoEMethod
"""The methods that have router losses."""


def balance_loss(
    routing: Routing, form: Literal["tokens", "gates"], rows: int | None = None
) -> Float[Tensor, ""]:
    """Return E * sum_i load_i P_i, P_i the mean of the full softmax's gate i.

    `tokens` (arXiv:2408.08274 §3): load_i is the share of tokens sent to expert i, a constant to
    the gradient; top-k sends each token k times, so the loss is k when all is even. `gates`
    (arXiv:2403.07816 §3.3): load_i is the mean of the sparse gates, which carry gradient. What a
    capacity limit drops counts as sent to `tokens`, as in arXiv:2101.03961 §2.2.

    `rows` sequences have means and a loss of their own, the result being the average; None takes
    the batch's means over all devices (arXiv:2501.11873), each with as many tokens.

    Raises:
        ValueError: `rows` does not divide the batch.
    """
    if rows is not None and routing.logits.shape[0] % rows:
        raise ValueError(
            f"micro_batch_sequences must divide the batch's {routing.logits.shape[0]} sequences, "
            f"got {rows}"
        )

    def mean(x: Tensor) -> Tensor:  # G E
        if rows is None:
            return _over_devices(x.flatten(0, -2).mean(0, keepdim=True))
        return x.reshape(x.shape[0] // rows, -1, x.shape[-1]).mean(1)

    gates = mean(routing.logits.softmax(-1))
    match form:
        case "tokens":
            load = mean(torch.zeros_like(routing.logits).scatter(-1, routing.chosen, 1.0))
        case "gates":
            load = mean(routing.gates)
        case _:
            assert_never(form)
    return gates.shape[-1] * (load * gates).sum(-1).mean()


def _over_devices(x: Tensor) -> Tensor:
    """Return the mean over all devices, with this device's gradient.

    Averaged over devices, as data-parallel training does, such gradients are the whole batch's.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return x
    total = x.detach().clone()
    torch.distributed.all_reduce(total)
    return x + (total / torch.distributed.get_world_size() - x.detach())


def z_loss(routing: Routing) -> Float[Tensor, ""]:
    """Return the batch mean of logsumexp(logits) squared (arXiv:2202.08906 §3; BAM §3)."""
    return routing.logits.logsumexp(-1).square().mean()


def l1_loss(routings: Sequence[Routing], active_experts: int) -> Float[Tensor, ""]:
    """Return the load-weighted L1 norm of ReLU gates (arXiv:2412.14711 §3.3).

    The mean over layers and tokens of sum_i f_i g_i, f_i = E / active_experts * the share of the
    tokens (of all devices) whose gate i is open, a constant to the gradient. It is the sum of a
    token's gates where loads are even and as many as `active_experts`.
    """
    layers = []
    for routing in routings:
        gates = routing.gates.flatten(0, -2)  # tokens E
        opened = _over_devices((gates > 0).float().mean(0))
        load = gates.shape[-1] / active_experts * opened
        layers.append((load * gates.mean(0)).sum())
    return torch.stack(layers).mean()


def router_losses(output: Output, method: MethodSpec) -> dict[str, Tensor]:
    """Return the method's router losses, not yet weighted.

    Each is summed over layers, the L1 loss of ReLU gates averaged.
    """
    losses: dict[str, Tensor] = {}
    if not isinstance(method, _Routed):
        return losses

    def add(name: str, loss: Tensor) -> None:
        losses[name] = losses[name] + loss if name in losses else loss

    balance, attention = _ffn_balance(method), _attention_balance(method)
    for layer in output.routings:
        if layer.ffn is not None and balance is not None:
            add("balance_loss_ffn", balance_loss(layer.ffn, balance.form, _rows(balance)))
        if layer.ffn is not None and _z_weight(method):
            add("z_loss", z_loss(layer.ffn))
        if attention is not None:
            assert layer.attention is not None
            loss = balance_loss(layer.attention, attention.form, _rows(attention))
            add("balance_loss_attention", loss)
    if isinstance(method.ffn_router, ReLURouter):
        routings = [layer.ffn for layer in output.routings if layer.ffn is not None]
        add("l1_loss_ffn", l1_loss(routings, method.ffn_router.active_experts))
    return losses


def weigh(
    losses: Mapping[str, Tensor], method: MethodSpec, l1_weight: Float[Tensor, ""] | None = None
) -> Tensor | float:
    """Return the weighted sum of `router_losses`, to be added to the language-model loss.

    `l1_weight` is the model's (`Transformer`), which moves; every other weight is the method's.
    """
    if not isinstance(method, _Routed):
        return 0.0
    balance, attention = _ffn_balance(method), _attention_balance(method)
    weights: dict[str, Tensor | float] = {
        "balance_loss_ffn": balance.weight if balance else 0.0,
        "balance_loss_attention": attention.weight if attention else 0.0,
        "z_loss": _z_weight(method),
    }
    if l1_weight is not None:
        weights["l1_loss_ffn"] = l1_weight.clone()  # it moves before the backward reads it
    return sum((weights[name] * loss for name, loss in losses.items()), 0.0)


def _ffn_balance(method: _Routed) -> BalanceLoss | None:
    return method.balance_loss if is_balanced(method.ffn_router) else None


def _attention_balance(method: MethodSpec) -> BalanceLoss | None:
    return method.attention_balance_loss if isinstance(method, BAMMethod) else None


def _z_weight(method: _Routed) -> float:
    return method.z_loss if has_softmax(method.ffn_router) else 0.0


def _rows(loss: BalanceLoss) -> int | None:
    """Return the sequences of each group whose loads are balanced; None for all."""
    match loss.over:
        case "sequence":
            return 1
        case "micro_batch":
            return loss.micro_batch_sequences
        case "global_batch":
            return None
        case _:
            assert_never(loss.over)
