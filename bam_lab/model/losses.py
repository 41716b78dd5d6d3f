"""The losses: next token (chunked, the full logits never held), load balance, router z.

Next token: at nano the LM head and the cross-entropy are most of a training step. Both fast paths
work on chunks of `CHUNK` tokens and compute the gradient in the same pass. Measured on one core of
an AVX512-BF16 EPYC, 4,096 tokens, vocabulary 4,096, forward and backward (dim 64 / dim 128):
plain float32 113 / 194 ms and bf16 80 / 117 ms (227 / 306 and 226 / 274 ms where the allocator
returns each chunk to the system, see `train/numerics.py`); torch's own `linear_cross_entropy`
104 / 190 ms in float32, and as much under autocast, which it ignores; ours in bf16 58 / 97 ms,
ours in float32 115 / 185 ms. So float32 takes torch's and bf16 takes ours.

Matrix products executed: 3 of N * V * D in either path (logits, and the two gradients).

All sums, softmaxes and losses are float32: a mean over thousands of tokens does not fit 8 bits.

Shapes: N tokens (any leading shape), D dim, V vocab, B batch, T tokens, E experts,
G groups of rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, assert_never

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import LinearCrossEntropyOptions

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

CHUNK = 256  # tokens
_TINY = 1e-30  # below, float32 probabilities lose digits and the nats are computed from the logits


def next_token_loss(
    hidden: Float[Tensor, "*N D"],
    weight: Float[Tensor, "V D"],
    targets: Int[Tensor, "*N"],
    reduction: Literal["mean", "sum"] = "mean",
) -> Float[Tensor, ""]:
    """Return the cross-entropy of `hidden @ weight.T` against `targets`, in nats."""
    flat, wanted = hidden.reshape(-1, hidden.shape[-1]), targets.reshape(-1)
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        total: Tensor = _Chunked.apply(  # type: ignore[no-untyped-call]
            flat, weight, wanted, torch.get_autocast_dtype(device)
        )
        return total / wanted.numel() if reduction == "mean" else total
    options = LinearCrossEntropyOptions(batch_chunk_size=CHUNK)
    return F.linear_cross_entropy(flat, weight, wanted, reduction=reduction, options=options)


def next_token_loss_reference(
    hidden: Float[Tensor, "*N D"],
    weight: Float[Tensor, "V D"],
    targets: Int[Tensor, "*N"],
    reduction: Literal["mean", "sum"] = "mean",
) -> Float[Tensor, ""]:
    """Return the same from all logits at once: the oracle."""
    logits = F.linear(hidden, weight).float()
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction=reduction)


@torch.no_grad()
def token_nats(
    hidden: Float[Tensor, "*N D"], weight: Float[Tensor, "V D"], targets: Int[Tensor, "*N"]
) -> Float[Tensor, "*N"]:
    """Return each target's negative log-likelihood, in nats, in chunks; for evaluation."""
    flat, wanted = hidden.reshape(-1, hidden.shape[-1]), targets.reshape(-1)
    chunks = zip(torch.split(flat, CHUNK), torch.split(wanted, CHUNK), strict=True)
    nats = [
        F.cross_entropy(F.linear(part, weight).float(), want, reduction="none")
        for part, want in chunks
    ]
    return torch.cat(nats).view(targets.shape)


class _Chunked(torch.autograd.Function):
    """Sum the cross-entropy over chunks, in reduced precision, its gradient in the same pass.

    Buffers are allocated once and written in place: fresh ones cost more than the softmax.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, dtype: torch.dtype
    ) -> Tensor:
        rows, vocab = min(CHUNK, hidden.shape[0]), weight.shape[0]
        h, w = hidden.to(dtype), weight.to(dtype)
        dh = torch.empty_like(h)
        # A frozen LM head (low-rank branches) gets no gradient.
        dw = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        logits, dlogits = h.new_empty(rows, vocab), h.new_empty(rows, vocab)
        probabilities = h.new_empty(rows, vocab, dtype=torch.float32)
        partial = torch.empty_like(w)
        likelihood = h.new_empty(h.shape[0], dtype=torch.float32)
        for start in range(0, h.shape[0], rows):
            part, want = h[start : start + rows], targets[start : start + rows, None]
            n = part.shape[0]
            p, dz = probabilities[:n], dlogits[:n]
            z = torch.mm(part, w.T, out=logits[:n])
            torch.softmax(z, -1, dtype=torch.float32, out=p)
            hit = p.gather(1, want)
            likelihood[start : start + n] = hit[:, 0]
            p.scatter_(1, want, hit - 1)
            dz.copy_(p)
            torch.mm(dz, w, out=dh[start : start + n])
            if dw is not None:
                dw += torch.mm(dz.T, part, out=partial)
        ctx.save_for_backward(dh, dw)
        ctx.dtypes = hidden.dtype, weight.dtype
        if likelihood.min() < _TINY:
            return token_nats(h, w, targets).sum()
        return -likelihood.log().sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        dh, dw = ctx.saved_tensors
        (grad,) = grads
        hidden, weight = ctx.dtypes
        return (dh.to(hidden) * grad), None if dw is None else (dw * grad).to(weight), None, None


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
