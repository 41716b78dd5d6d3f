"""Run each token through its chosen experts only: sort by expert, one product an expert, unsort.

The work is exactly one expert a (token, choice) pair, without padding or capacity. Unsorting is a
gather, not a scatter-add, so the forward sums in a fixed order.

Shapes: N tokens (all rows of the batch), A active experts, P = N * A pairs.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


class Groups(NamedTuple):
    """Hold the pairs sorted by expert.

    Attributes:
        order: the pair at each sorted place.
        inverse: the sorted place of each pair.
        sizes: pairs of each expert.
    """

    order: Int[Tensor, " P"]
    inverse: Int[Tensor, " P"]
    sizes: list[int]


def group(chosen: Int[Tensor, "N A"], num_experts: int) -> Groups:
    """Sort (token, choice) pairs by expert, stable, so that equal inputs give equal bits."""
    flat = chosen.reshape(-1)
    order = flat.argsort(stable=True)
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(order.numel(), device=order.device)
    return Groups(order, inverse, torch.bincount(flat, minlength=num_experts).tolist())


def grouped_linear(
    x: Float[Tensor, "P D"], weight: Float[Tensor, "E O D"], groups: Groups
) -> Float[Tensor, "P O"]:
    """Multiply each group's rows by its expert's weight; `x` is in sorted order."""
    parts = torch.split(x, groups.sizes)
    return torch.cat([F.linear(part, own) for part, own in zip(parts, weight, strict=True)])


def combine(
    y: Float[Tensor, "P D"], gates: Float[Tensor, "N A"], groups: Groups
) -> Float[Tensor, "N D"]:
    """Weight the sorted outputs by their gates, put them back and sum over choices."""
    paired = y.index_select(0, groups.inverse).view(*gates.shape, -1)  # N A D
    # A float32 gate times a bf16 output is float32: the gate's rounding would bias the router.
    return (paired * gates.unsqueeze(-1)).sum(1)
