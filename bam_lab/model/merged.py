"""SwiGLUs merged of several experts' weights, one for each group of tokens.

W_m = sum_e gates[m, e] W_e for each of the three matrices, then W_down (silu(W_gate x) * W_up x)
for the tokens of group m: a segment (`lory.py`) or a sequence (`smear.py`).

What is unusual: merged weights are never kept. Groups go in chunks of which only one's merges exist
at a time, and the backward merges again. Of a token it keeps 2 F numbers, gate and up, where a
dense SwiGLU keeps 4 F.

Experts are merged in float32 also under autocast: gates rounded to bf16 would not sum to 1, and
copies of one model would not merge into that model.

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

from bam_lab.model.layers import to_compute

CHUNK_NUMBERS = 2**22  # of merged weights that exist at a time


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
    """Return each group's weighted sum of the experts' weights, for the products to come."""
    with torch.autocast(gates.device.type, enabled=False):
        merged = gates @ weight.flatten(1)  # M (O I)
    return to_compute(merged).view(-1, *weight.shape[1:])


def _merges(gates: Tensor, stacks: tuple[Tensor, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Merge gate and up side by side, and down, for one chunk."""
    gate, up, down = stacks
    count, size = gates.shape[0], gate[0].numel()
    both = gates.new_empty(count, 2, size)
    torch.mm(gates, gate.flatten(1), out=both[:, 0])
    torch.mm(gates, up.flatten(1), out=both[:, 1])
    merged_down = gates @ down.flatten(1)
    return (
        both.to(dtype).view(count, 2 * gate.shape[1], gate.shape[2]),
        merged_down.to(dtype).view(count, *down.shape[1:]),
    )


class _Merged(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gates: Tensor, gate: Tensor, up: Tensor, down: Tensor
    ) -> Tensor:
        m, s, _ = x.shape
        hidden = gate.shape[1]
        chunk = _chunk(gate)
        gate_up, y = x.new_empty(m, s, 2 * hidden), torch.empty_like(x)
        with torch.autocast(x.device.type, enabled=False):
            for start in range(0, m, chunk):
                part = slice(start, start + chunk)
                both, merged_down = _merges(gates[part], (gate, up, down), x.dtype)
                torch.bmm(x[part], both.mT, out=gate_up[part])
                gated, upped = gate_up[part].chunk(2, -1)
                torch.bmm(F.silu(gated) * upped, merged_down.mT, out=y[part])
        ctx.save_for_backward(x, gates, gate, up, down, gate_up)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        x, gates, gate, up, down, gate_up = ctx.saved_tensors
        (dy,) = grads
        hidden = gate.shape[1]
        chunk = _chunk(gate)
        dx, dgates = torch.empty_like(x), torch.zeros_like(gates)
        stacks = [stack.flatten(1) for stack in (gate, up, down)]
        dstacks = [torch.zeros_like(stack) for stack in stacks]
        with torch.autocast(x.device.type, enabled=False):
            for start in range(0, x.shape[0], chunk):
                part = slice(start, start + chunk)
                both, merged_down = _merges(gates[part], (gate, up, down), x.dtype)
                gated, upped = gate_up[part].chunk(2, -1)
                active = F.silu(gated)
                dhidden = torch.bmm(dy[part], merged_down)
                dmerged_down = torch.bmm(dy[part].mT, active * upped)
                dgate_up = torch.empty_like(gate_up[part])
                torch.mul(dhidden, active, out=dgate_up[..., hidden:])
                dgate_up[..., :hidden] = torch.ops.aten.silu_backward(dhidden.mul_(upped), gated)
                torch.bmm(dgate_up, both, out=dx[part])
                dboth = torch.bmm(dgate_up.mT, x[part]).float().view(-1, 2, stacks[0].shape[1])
                dmerged = (dboth[:, 0], dboth[:, 1], dmerged_down.float().flatten(1))
                for own, dstack, stack in zip(dmerged, dstacks, stacks, strict=True):
                    torch.addmm(dstack, gates[part].T, own, out=dstack)
                    torch.addmm(dgates[part], own, stack.T, out=dgates[part])
        shaped = (d.view_as(w) for d, w in zip(dstacks, (gate, up, down), strict=True))
        return dx, dgates, *shaped


def _chunk(gate: Tensor) -> int:
    return max(CHUNK_NUMBERS // (3 * gate[0].numel()), 1)
