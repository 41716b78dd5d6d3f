"""Run each token through its chosen experts only: sort by expert, one product an expert, unsort.

The work is one expert a (token, choice) pair that is kept; the others are not run. Unsorting is a
gather, not a scatter-add, so the forward sums in a fixed order.

In bf16 on a CPU each group is filled up to a multiple of `FILL` rows (of a quarter of that where
groups are small), with copies of the first token that nobody reads: oneDNN compiles a kernel for
every new number of rows (0.5 ms and 0.5 MB each, measured on one core; a step has 72 products at
nano). The executed FLOPs of `cost/` leave these rows out: at most E * (FILL - 1) of them a layer
and step. Up to `FILL` pairs are not filled.

Shapes: N tokens (all rows of the batch), A active experts, P = N * A pairs, Q kept pairs and the
filling.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

FILL = 64
MANY = 1024
"""Rows of an even group from which on filling up to `FILL` costs little."""


class Groups(NamedTuple):
    """Hold the pairs sorted by expert.

    Attributes:
        order: the pair at each sorted place; pair 0 where the place is filling.
        inverse: the sorted place of each pair; 0 for one that is not kept, whose gate is 0.
        sizes: places of each expert.
    """

    order: Int[Tensor, " Q"]
    inverse: Int[Tensor, " P"]
    sizes: list[int]


def group(
    chosen: Int[Tensor, "N A"],
    num_experts: int,
    dtype: torch.dtype,
    kept: Bool[Tensor, "N A"] | None = None,
) -> Groups:
    """Sort (token, choice) pairs by expert, stable, so that equal inputs give equal bits.

    `kept` None keeps all.
    """
    flat = chosen.reshape(-1)
    if kept is not None:  # the others sort to the end, as of one expert more
        flat = flat.where(kept.reshape(-1), num_experts)
    counts = torch.bincount(flat, minlength=num_experts)[:num_experts]
    by_expert = flat.argsort(stable=True)
    if kept is not None:
        by_expert = by_expert[: int(counts.sum())]
    filled = dtype == torch.bfloat16 and chosen.device.type == "cpu"
    fill = fill_of(flat.numel(), num_experts) if filled else 1
    sizes = (counts + fill - 1) // fill * fill
    shift = (sizes - counts).cumsum(0) - (sizes - counts)
    places = torch.arange(by_expert.numel(), device=flat.device)
    places = places + shift.repeat_interleave(counts)
    inverse = torch.zeros_like(flat)
    inverse[by_expert] = places
    order = by_expert.new_zeros(int(sizes.sum()))
    order[places] = by_expert
    return Groups(order, inverse, sizes.tolist())


def fill_of(pairs: int, num_experts: int) -> int:
    """Return the multiple of rows that groups are filled to, in bf16 on a CPU."""
    if pairs <= FILL:
        return 1
    return FILL if pairs >= MANY * num_experts else FILL // 4


def grouped_linear(
    x: Float[Tensor, "Q D"], weight: Float[Tensor, "E O D"], groups: Groups
) -> Float[Tensor, "Q O"]:
    """Multiply each group's rows by its expert's weight; `x` is in sorted order."""
    parts = torch.split(x, groups.sizes)
    return torch.cat([F.linear(part, own) for part, own in zip(parts, weight, strict=True)])


def combine(
    y: Float[Tensor, "Q D"], gates: Float[Tensor, "N A"], groups: Groups
) -> Float[Tensor, "N D"]:
    """Weight the sorted outputs by their gates, put them back and sum over choices."""
    if not len(y):  # no pair was kept, and there is no row to take
        return torch.zeros(gates.shape[0], y.shape[1], device=y.device)
    paired = y.index_select(0, groups.inverse).view(*gates.shape, -1)  # N A D
    # A float32 gate times a bf16 output is float32: the gate's rounding would bias the router.
    return (paired * gates.unsqueeze(-1)).sum(1)
