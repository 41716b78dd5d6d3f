"""SwiGLUs merged of several experts' weights, one for each group of tokens.

W_m = sum_e gates[m, e] W_e for each of the three matrices, then W_down (silu(W_gate x) * W_up x)
for the tokens of group m: a segment (`lory.py`) or a sequence (`smear.py`).

What is unusual: merged weights are never kept. Groups go in chunks of which only one's merges exist
at a time, and the backward merges again. Of a token it keeps 2 F numbers, gate and up, where a
dense SwiGLU keeps 4 F.

Experts are merged in float32 also under autocast: gates rounded to bf16 would not sum to 1, and
copies of one model would not merge into that model. The gradients of experts and gates are products
in compute precision, as those of a dense model's weights are.

Matrix products executed for M groups of S places: merging M x E x 3 F D forward, three times that
backward (again, and the gradients of gates and experts); a SwiGLU for each of M x S places, and
twice that backward.

Shapes: M groups, S places of a group, D dim, F ffn_dim, E experts, C groups of a chunk.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

COLUMNS = 2**14  # of flat weights merged at a time
LEAST_GROUPS = 32  # of a chunk: products with fewer rows do not fill a core


def merged_swiglu(
    x: Float[Tensor, "M S D"],
    gates: Float[Tensor, "M E"],
    gate: Float[Tensor, "E F D"],
    up: Float[Tensor, "E F D"],
    down: Float[Tensor, "E D F"],
) -> Float[Tensor, "M S D"]:
    """Map each group's places by the SwiGLU that its gates make of all experts."""
    y: Tensor = _Merged.apply(x, gates, gate, up, down)  # type: ignore[no-untyped-call]
    return y


def merged_swiglu_reference(
    x: Float[Tensor, "M S D"],
    gates: Float[Tensor, "M E"],
    gate: Float[Tensor, "E F D"],
    up: Float[Tensor, "E F D"],
    down: Float[Tensor, "E D F"],
) -> Float[Tensor, "M S D"]:
    """Go through the groups one by one: the oracle."""
    outputs = []
    for places, weights in zip(x, gates, strict=True):
        own = [torch.einsum("e,eoi->oi", weights, stack) for stack in (gate, up, down)]
        outputs.append((F.silu(places @ own[0].T) * (places @ own[1].T)) @ own[2].T)
    return torch.stack(outputs)


def merge(gates: Float[Tensor, "M E"], weight: Float[Tensor, "E O I"]) -> Float[Tensor, "M O I"]:
    """Return each group's weighted sum of the experts' weights, in compute precision."""
    device = gates.device.type
    reduced = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if reduced else gates.dtype
    with torch.autocast(device, enabled=False):
        return _merge(gates, weight, dtype)


def _merge(gates: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Merge in float32; where another type is wanted, by columns that stay in the cache."""
    flat = weight.flatten(1)  # E (O I)
    if dtype == gates.dtype:
        return (gates @ flat).view(-1, *weight.shape[1:])
    merged = gates.new_empty(gates.shape[0], flat.shape[1], dtype=dtype)
    for start in range(0, flat.shape[1], COLUMNS):
        part = slice(start, start + COLUMNS)
        merged[:, part] = gates @ flat[:, part]
    return merged.view(-1, *weight.shape[1:])


class _Merged(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gates: Tensor, gate: Tensor, up: Tensor, down: Tensor
    ) -> Tensor:
        gated = x.new_empty(*x.shape[:2], gate.shape[1])
        upped, y = torch.empty_like(gated), x.new_empty(x.shape)
        with torch.autocast(x.device.type, enabled=False):
            for part in _chunks(gates):
                own = [_merge(gates[part], w, x.dtype) for w in (gate, up, down)]
                torch.bmm(x[part], own[0].mT, out=gated[part])
                torch.bmm(x[part], own[1].mT, out=upped[part])
                torch.bmm(F.silu(gated[part]).mul_(upped[part]), own[2].mT, out=y[part])
        ctx.save_for_backward(x, gates, gate, up, down, gated, upped)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        x, gates, gate, up, down, all_gated, all_upped = ctx.saved_tensors
        stacks, (all_dy,) = (gate, up, down), grads
        dx, dgates = x.new_empty(x.shape), torch.zeros_like(gates)
        dstacks = [torch.empty_like(stack).flatten(1) for stack in stacks]
        with torch.autocast(x.device.type, enabled=False):
            for part in _chunks(gates):
                own = [_merge(gates[part], stack, x.dtype) for stack in stacks]
                dy, gated, upped = all_dy[part], all_gated[part], all_upped[part]
                active, dhidden = F.silu(gated), torch.bmm(dy, own[2])
                dupped = dhidden * active
                dgated = torch.ops.aten.silu_backward(dhidden.mul_(upped), gated)
                torch.bmm(dgated, own[0], out=dx[part])
                torch.baddbmm(dx[part], dupped, own[1], out=dx[part])
                dmerged = (
                    torch.bmm(dgated.mT, x[part]),
                    torch.bmm(dupped.mT, x[part]),
                    torch.bmm(dy.mT, active.mul_(upped)),
                )
                for found, dstack, stack in zip(dmerged, dstacks, stacks, strict=True):
                    flat = found.flatten(1)  # M (O I)
                    share = gates[part].T.to(x.dtype) @ flat
                    if part.start == 0:
                        dstack.copy_(share)
                    else:
                        dstack += share
                    dgates[part] += (stack.flatten(1).to(x.dtype) @ flat.T).T
        shaped = (d.view_as(w) for d, w in zip(dstacks, stacks, strict=True))
        return dx, dgates, *shaped


def _chunks(gates: Tensor) -> list[slice]:
    """Cut the groups so that merges of a chunk take little more than the experts themselves."""
    size = max(LEAST_GROUPS, 2 * gates.shape[1])
    return [slice(start, start + size) for start in range(0, gates.shape[0], size)]
