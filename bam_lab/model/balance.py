"""Loss-free balancing: a bias that no gradient reaches (arXiv:2408.15664 §3, Algorithm 1)."""

import torch

from bam_lab.model.ffn import FFNExperts
from bam_lab.model.transformer import Output, Transformer
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
