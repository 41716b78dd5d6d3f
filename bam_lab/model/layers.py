"""The small parts every block shares: norms, rotary positions, SwiGLU and GELU, casting.

What is unusual: no biases anywhere; weights are bare parameters in `nn.Linear` order (out, in),
with a leading expert axis where they are stacked, so that a mixture's tensor is a stack of dense
tensors and nothing else; rotary positions follow Llama's half-rotation (arXiv:2104.09864 with the
two halves of a head, not neighbouring pairs), in one pass forward and one backward.

Shapes: B batch, T tokens, D dim, N heads, C head_dim, F ffn_dim, E experts.
"""

from typing import Any, assert_never

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from bam_lab.spec.model import ModelSpec

FEW = 64  # vectors of one step of generation

Rope = tuple[Float[Tensor, "*B T C"], Float[Tensor, "*B T C"]] | None
"""Cosines and signed sines, of each row where rows stand at different positions; None where
positions are learned and nothing is rotated."""


def norm(
    x: Float[Tensor, "B T D"], weight: Float[Tensor, " D"], spec: ModelSpec
) -> Float[Tensor, "B T D"]:
    """Norm the residual stream as the model's shape says, in float32."""
    match spec.norm:
        case "rms":
            return rms_norm(x, weight, spec.norm_eps)
        case "layer":
            return F.layer_norm(x.float(), weight.shape, weight, None, spec.norm_eps)
        case _:
            assert_never(spec.norm)


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


def rope_tables(
    seq_len: int, head_dim: int, theta: float
) -> tuple[Float[Tensor, "T C"], Float[Tensor, "T C"]]:
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
    """Turn each head by its position's angles; without them, leave it as it is."""
    if rope is None:
        return x
    cos, sin = (table.to(x.dtype).unsqueeze(-2) for table in rope)  # T 1 C
    rotated: Tensor = _Rotate.apply(x, cos, sin)  # type: ignore[no-untyped-call]
    return rotated


def is_step(x: Float[Tensor, "*N D"]) -> bool:
    """Return whether `x` is as few vectors as in a step of generation, and asks no gradient.

    Such products are bound by reading the weights, so copying these side by side costs most:
    without the copies a token decodes in 0.6 to 0.9 of the time (soft FFN experts, dim 512, one
    core).
    """
    return not torch.is_grad_enabled() and x.numel() <= FEW * x.shape[-1]


def project(x: Float[Tensor, "*N D"], *weights: Tensor) -> tuple[Tensor, ...]:
    """Multiply by several weights (..., out, in) in one matrix product; split the result."""
    flat = [weight.reshape(-1, weight.shape[-1]) for weight in weights]
    # One product over frozen and trained weights would compute the gradients of both.
    if is_step(x) or len({weight.requires_grad for weight in flat}) > 1:
        return tuple(F.linear(x, weight) for weight in flat)
    return torch.split(F.linear(x, torch.cat(flat)), [weight.shape[0] for weight in flat], -1)


def swiglu(
    x: Float[Tensor, "*N D"],
    gate: Float[Tensor, "F D"],
    up: Float[Tensor, "F D"],
    down: Float[Tensor, "D F"],
) -> Float[Tensor, "*N D"]:
    """Compute W_down (silu(W_gate x) * W_up x), gate and up in one matrix product."""
    gated, upped = project(x, gate, up)
    return F.linear(F.silu(gated) * upped, down)


def swiglu_stacks(spec: ModelSpec, num_experts: int) -> tuple[nn.Parameter, ...]:
    """Return gate and up [E, F, D] and down [E, D, F] of E SwiGLUs, uninitialised."""
    inner, outer = (num_experts, spec.ffn_dim, spec.dim), (num_experts, spec.dim, spec.ffn_dim)
    return tuple(nn.Parameter(torch.empty(shape)) for shape in (inner, inner, outer))


def sum_experts(
    x: Float[Tensor, "B T E I"], weight: Float[Tensor, "E O I"]
) -> Float[Tensor, "B T O"]:
    """Sum W_e x_e over all experts, in one matrix product: [W_1 .. W_E] [x_1; ..; x_E]."""
    if is_step(x):
        return torch.stack([F.linear(x[:, :, e], own) for e, own in enumerate(weight)]).sum(0)
    return F.linear(x.flatten(2), weight.transpose(0, 1).flatten(1))


def gelu_ffn(
    x: Float[Tensor, "*N D"], up: Float[Tensor, "F D"], down: Float[Tensor, "D F"]
) -> Float[Tensor, "*N D"]:
    """Compute W_down gelu(W_up x), by GELU's tanh form (arXiv:1606.08415 §2)."""
    return F.linear(F.gelu(F.linear(x, up), approximate="tanh"), down)
