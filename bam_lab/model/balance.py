"""What balances loads and is moved after each training step, with no gradient.

A bias that chooses (arXiv:2408.15664 §3, Algorithm 1); the coefficient of the L1 loss that closes
ReLU gates (arXiv:2412.14711 §3.2).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from bam_lab.model.ffn import FFNExperts
from bam_lab.model.transformer import Output, Transformer
from bam_lab.spec.experts import relu_router
from bam_lab.spec.routers import TopKRouter


@torch.no_grad()
def move_biases(model: Transformer, output: Output) -> None:
    """Move each expert's bias by its router's `bias_rate` against the load of a training step.

    Up where the step sent it less than the mean, down where more; loads are those of all devices.
    """
    for layer, routing in zip(model.layers, output.routings, strict=True):
        ffn = layer.ffn
        if not isinstance(ffn, FFNExperts) or ffn.bias is None or routing.ffn is None:
            continue
        assert isinstance(ffn.router_spec, TopKRouter) and ffn.router_spec.bias_rate is not None
        load = torch.bincount(routing.ffn.chosen.flatten(), minlength=len(ffn.bias)).float()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(load)
        ffn.bias += ffn.router_spec.bias_rate * (load.mean() - load).sign()


@torch.no_grad()
def move_l1_weight(model: Transformer, output: Output) -> None:
    """Multiply the L1 weight of ReLU gates by `l1_growth` ** sign(target - sparsity).

    Up where a training step had more open gates than the router's `active_experts`, down where
    fewer.
    """
    router = relu_router(model.method)
    if router is None or model.l1_weight is None:
        return
    target = 1 - router.active_experts / model.num_experts
    model.l1_weight *= router.l1_growth ** (target - sparsity(output)).sign()
    # Too small to matter, and not 0, which no growth would leave.
    model.l1_weight.clamp_(min=torch.finfo(model.l1_weight.dtype).tiny)


@torch.no_grad()
def sparsity(output: Output) -> Float[Tensor, ""]:
    """Return the share of FFN gates that are 0, of all routed layers and devices."""
    gates = [layer.ffn.gates for layer in output.routings if layer.ffn is not None]
    closed = torch.stack([(own == 0).float().mean() for own in gates]).mean()
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.all_reduce(closed)
        closed /= torch.distributed.get_world_size()
    return closed
