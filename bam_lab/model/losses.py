"""The next-token loss, in chunks, so that the full logits are never held.

At nano the LM head and the cross-entropy are most of a training step. Both fast paths
work on chunks of `CHUNK` tokens and compute the gradient in the same pass. Measured on one core of
an AVX512-BF16 EPYC, 4,096 tokens, vocabulary 4,096, forward and backward (dim 64 / dim 128):
plain float32 113 / 194 ms and bf16 80 / 117 ms (227 / 306 and 226 / 274 ms where the allocator
returns each chunk to the system, see `train/numerics.py`); torch's own `linear_cross_entropy`
104 / 190 ms in float32, and as much under autocast, which it ignores; ours in bf16 58 / 97 ms,
ours in float32 115 / 185 ms. So float32 takes torch's and bf16 takes ours.

Matrix products executed: 3 of N * V * D in either path (logits, and the two gradients).

Sums, softmaxes and losses are float32: a mean over thousands of tokens does not fit 8 bits.

Shapes: N tokens (any leading shape), D dim, V vocab.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import LinearCrossEntropyOptions

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
