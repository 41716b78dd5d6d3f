"""Apply a table of origins in memory, tensor by tensor."""

import math
from collections.abc import Mapping, Sequence
from typing import assert_never

import torch
from torch import Tensor

from bam_lab.model.hashing import hash_table
from bam_lab.model.transformer import Transformer
from bam_lab.spec.experts import hash_router, num_experts_of
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.model import ModelSpec
from bam_lab.upcycle.coverage import check_coverage
from bam_lab.upcycle.origins import Origin, Shape, Source, origins

State = Mapping[str, Tensor]


def upcycle(
    method: MethodSpec,
    spec: ModelSpec,
    experts: Sequence[State],
    generator: torch.Generator,
    token_counts: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return the state of the model that `method` makes of dense models of shape `spec`.

    `experts` are the dense states that are read, in router-column order; `generator` draws the
    routers, in the table's order, then the noise of copies, then the channels that are drawn anew,
    so that these move no router.
    `token_counts` are the tokens' frequencies, for a hash that balances them.

    Raises:
        ValueError: the table does not cover the model, or a dense model has another shape.
    """
    table = origins(method, spec, [str(i) for i in range(len(experts))])
    target = target_shapes(method, spec, num_experts_of(method, len(experts)))
    check_coverage(table, target, [shapes(expert) for expert in experts])
    drawn = sorted(table.items(), key=lambda row: not row[0].endswith(".router"))
    made = {name: make(origin, experts, generator) for name, origin in drawn if origin.op != "hash"}
    if (router := hash_router(method)) is not None:
        count = num_experts_of(method, len(experts))
        tokens = hash_table(router, count, made["embedding"], token_counts)
        made |= {name: tokens.clone() for name, origin in table.items() if origin.op == "hash"}
    redraw_channels(made, table, generator)
    return {name: made[name] for name in table}


def make(origin: Origin, experts: Sequence[State], generator: torch.Generator) -> Tensor:
    """Make one tensor.

    The mean adds up in float64, so that the mean of equal tensors is that tensor, bit by bit.
    """
    tensors = [piece(experts, source) for source in origin.sources]
    match origin.op:
        case "take":
            return tensors[0] * origin.scale
        case "copy" | "reinit":
            return copies(tensors, origin, generator)
        case "mean":
            return mean(tensors, origin.weights) * origin.scale
        case "stack":
            return torch.stack(tensors) * origin.scale
        case "blend":
            return blend(tensors, origin) * origin.scale
        case "init":
            rows = (origin.shape[0] // origin.repeat, *origin.shape[1:])
            drawn = torch.empty(rows).normal_(0.0, origin.std, generator=generator)
            return drawn.repeat_interleave(origin.repeat, 0)
        case "ones":
            return torch.ones(origin.shape) * origin.scale
        case "zeros":
            return torch.zeros(origin.shape)
        case "hash":
            raise AssertionError("made of the whole model: upcycle")
        case _:
            assert_never(origin.op)


def piece(experts: Sequence[State], source: Source) -> Tensor:
    """Return a source tensor, or the part of it that is asked for."""
    tensor, cut = experts[source.expert][source.tensor].detach(), source.cut
    return tensor if cut is None else tensor.chunk(cut.parts, cut.axis)[cut.part]


def copies(tensors: Sequence[Tensor], origin: Origin, generator: torch.Generator) -> Tensor:
    """Copy a tensor, or its parts in turn, into every expert; draw the experts that are not copies.

    The channels that a `reinit` draws anew are another step: a module's tensors share them.
    """
    noise = torch.empty(origin.shape).normal_(0.0, origin.std, generator=generator)
    parts = torch.stack(list(tensors)) * origin.scale
    made = parts.repeat(origin.shape[0] // len(parts), *(1 for _ in tensors[0].shape))
    made = made + noise.to(made.device)
    if origin.anew:
        made[-origin.anew :].normal_(0.0, origin.anew_std, generator=generator)
    return made


def redraw_channels(
    tensors: Mapping[str, Tensor], table: Mapping[str, Origin], generator: torch.Generator
) -> None:
    """Draw anew a share of each copy's hidden channels, in place (arXiv:2502.19261 §3).

    Each copy has channels of its own, the same in all tensors of its FFN: rows of gate and up,
    columns of down. They are drawn from a normal distribution with the mean and the standard
    deviation of the weights that they replace.
    """
    modules = [name.removesuffix(".down") for name in tensors if name.endswith(".ffn.down")]
    for module in modules:
        down = table[f"{module}.down"]
        if down.op != "reinit":
            continue
        width, copied = down.shape[-1], down.shape[0] - down.anew
        for expert in range(copied):
            order = torch.randperm(width, generator=generator)
            channels = order[: int(down.reinit_share * width)]
            for name, axis in (("gate", 0), ("up", 0), ("down", 1)):
                own = tensors[f"{module}.{name}"][expert]
                old = own.index_select(axis, channels)
                new = torch.empty_like(old).normal_(generator=generator)
                own.index_copy_(axis, channels, new * old.std() + old.mean())


def blend(tensors: Sequence[Tensor], origin: Origin) -> Tensor:
    """Join each expert's cuts along the axis that was cut, and stack the experts."""
    experts, cut = origin.shape[0], origin.sources[0].cut
    assert cut is not None
    each = len(tensors) // experts
    parts = [list(tensors[n * each : (n + 1) * each]) for n in range(experts)]
    return torch.stack([torch.cat(own, cut.axis) for own in parts])


def mean(tensors: Sequence[Tensor], weights: Sequence[float] = ()) -> Tensor:
    """Return the mean of tensors of one shape and type, added up in float64; uniform by default."""
    shares = weights or (1.0,) * len(tensors)
    total = torch.zeros_like(tensors[0], dtype=torch.float64)
    for tensor, share in zip(tensors, shares, strict=True):
        total += share * tensor.double()
    return (total / math.fsum(shares)).to(tensors[0].dtype)


def target_shapes(method: MethodSpec, spec: ModelSpec, num_experts: int) -> dict[str, Shape]:
    """Return the tensors that the model itself has; built on the meta device, at no cost."""
    with torch.device("meta"):
        model = Transformer(spec, method, num_experts)
    return shapes(model.state_dict())


def shapes(state: State) -> dict[str, Shape]:
    """Return each tensor's shape."""
    return {name: tuple(tensor.shape) for name, tensor in state.items()}
