"""The small parts every block shares: RMSNorm, rotary positions, SwiGLU, casting.

What is unusual: no biases anywhere; weights are bare parameters in `nn.Linear` order (out, in),
with a leading expert axis where they are stacked, so that a mixture's tensor is a stack of dense
tensors and nothing else; rotary positions follow Llama's half-rotation (arXiv:2104.09864 with the
two halves of a head, not neighbouring pairs), in one pass forward and one backward.

Shapes: B batch, T tokens, D dim, N heads, C head_dim, F ffn_dim.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

Rope = tuple[Float[Tensor, "T C"], Float[Tensor, "T C"]]


def rms_norm(
    x: Float[Tensor, "B T D"], weight: Float[Tensor, " D"], eps: float
) -> Float[Tensor, "B T D"]:
    """Divide by the root mean square, in float32: the sum of squares overflows bf16's 8 bits."""
    return F.rms_norm(x.float(), weight.shape, weight, eps)


def to_compute(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Cast to autocast's type once; autocast itself would cast again in each projection."""
    device = x.device.type
    if torch.is_autocast_enabled(device):
        return x.to(torch.get_autocast_dtype(device))
    return x


def rope_tables(seq_len: int, head_dim: int, theta: float) -> Rope:
    """Return cosines and signed sines for `rotate`, in float32."""
    half = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    angles = torch.outer(torch.arange(seq_len, dtype=torch.float32), theta**-half)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)


class _Rotate(torch.autograd.Function):
    """Rotate in two passes over memory; the backward is the rotation by the opposite angle."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return (x * cos).addcmul_(x.roll(x.shape[-1] // 2, -1), sin)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        (grad,) = grads
        return (grad * cos).addcmul_(grad.roll(grad.shape[-1] // 2, -1), sin, value=-1), None, None


def rotate(x: Float[Tensor, "B T N C"], rope: Rope) -> Float[Tensor, "B T N C"]:
    """Turn each head by its position's angles."""
    cos, sin = (table.to(x.dtype).unsqueeze(1) for table in rope)  # T 1 C
    rotated: Tensor = _Rotate.apply(x, cos, sin)  # type: ignore[no-untyped-call]
    return rotated


def project(x: Float[Tensor, "B T D"], *weights: Tensor) -> tuple[Tensor, ...]:
    """Multiply by several weights (..., out, in) in one matrix product; split the result."""
    flat = [weight.reshape(-1, weight.shape[-1]) for weight in weights]
    return torch.split(F.linear(x, torch.cat(flat)), [weight.shape[0] for weight in flat], -1)


def swiglu(
    x: Float[Tensor, "*N D"],
    gate: Float[Tensor, "F D"],
    up: Float[Tensor, "F D"],
    down: Float[Tensor, "D F"],
) -> Float[Tensor, "*N D"]:
    """Compute W_down (silu(W_gate x) * W_up x), gate and up in one matrix product."""
    gated, upped = F.linear(x, torch.cat((gate, up))).chunk(2, -1)
    return F.linear(F.silu(gated) * upped, down)
