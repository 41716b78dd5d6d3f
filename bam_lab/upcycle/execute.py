"""Apply a table of origins in memory, tensor by tensor."""

from collections.abc import Mapping, Sequence
from typing import assert_never

import torch
from torch import Tensor

from bam_lab.model.transformer import Transformer
from bam_lab.spec.experts import num_experts_of
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.model import ModelSpec
from bam_lab.upcycle.origins import Origin, Shape, check_coverage, origins

State = Mapping[str, Tensor]


def upcycle(
    method: MethodSpec, spec: ModelSpec, experts: Sequence[State], generator: torch.Generator
) -> dict[str, Tensor]:
    """Return the state of the model that `method` makes of dense models of shape `spec`.

    `experts` are the dense states that are read, in router-column order; `generator` draws the
    routers, in the table's order, and then the noise of copies, so that noise moves no router.

    Raises:
        ValueError: the table does not cover the model, or a dense model has another shape.
    """
    table = origins(method, spec, [str(i) for i in range(len(experts))])
    target = target_shapes(method, spec, num_experts_of(method, len(experts)))
    check_coverage(table, target, [shapes(expert) for expert in experts])
    drawn = sorted(table.items(), key=lambda row: row[1].op != "init")
    made = {name: make(origin, experts, generator) for name, origin in drawn}
    return {name: made[name] for name in table}


def make(origin: Origin, experts: Sequence[State], generator: torch.Generator) -> Tensor:
    """Make one tensor.

    The mean adds up in float64, so that the mean of equal tensors is that tensor, bit by bit.
    """
    tensors = [experts[source.expert][source.tensor].detach() for source in origin.sources]
    match origin.op:
        case "take":
            return tensors[0].clone()
        case "copy":
            noise = torch.empty(origin.shape).normal_(0.0, origin.std, generator=generator)
            return tensors[0] + noise.to(tensors[0].device)
        case "mean":
            return mean(tensors)
        case "stack":
            return torch.stack(tensors)
        case "init":
            return torch.empty(origin.shape).normal_(0.0, origin.std, generator=generator)
        case _:
            assert_never(origin.op)


def mean(tensors: Sequence[Tensor]) -> Tensor:
    """Return the uniform mean of tensors of one shape and type, added up in float64."""
    total = torch.zeros_like(tensors[0], dtype=torch.float64)
    for tensor in tensors:
        total += tensor
    return (total / len(tensors)).to(tensors[0].dtype)


def target_shapes(method: MethodSpec, spec: ModelSpec, num_experts: int) -> dict[str, Shape]:
    """Return the tensors that the model itself has; built on the meta device, at no cost."""
    with torch.device("meta"):
        model = Transformer(spec, method, num_experts)
    return shapes(model.state_dict())


def shapes(state: State) -> dict[str, Shape]:
    """Return each tensor's shape."""
    return {name: tuple(tensor.shape) for name, tensor in state.items()}
