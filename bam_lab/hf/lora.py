"""Train a dense model through adapters of low rank, by peft, and merge them into a whole model.

Our weights are bare parameters, so each adapter is peft's `ParamWrapper`: it adds scale * B A to
the matrix before a forward pass uses it. `cost/lora.py` counts what that runs.
"""

from collections.abc import Iterator

import torch
from peft import LoraConfig
from peft.tuners.lora import LoraModel
from peft.tuners.lora.layer import ParamWrapper
from torch import nn

from bam_lab.model.transformer import Transformer
from bam_lab.spec.branches import LoRASpec

NAME = "branch"


def attach(model: Transformer, lora: LoRASpec, rng_seed: int) -> Transformer:
    """Freeze a dense model and put an adapter on every matrix of the target modules, in place.

    B is zero, so the model computes what it did; A is drawn (Kaiming, as in peft).
    """
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]  # any number scales
        target_modules=[],
        target_parameters=[
            f"{name}.{matrix}"
            for name, module in _targets(model, lora)
            for matrix, _ in module.named_parameters(recurse=False)
        ],
    )
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(rng_seed)
        LoraModel(model, config, NAME)
    return model


def merge(model: Transformer) -> Transformer:
    """Add every adapter to its matrix, in place; every weight can be trained again."""
    for layer in model.layers:
        for part, module in list(layer.named_children()):
            if isinstance(module, ParamWrapper):
                whole = module.unload_and_optionally_merge_module(
                    merge=True, safe_merge=True, adapter_names=None
                )
                setattr(layer, part, whole)
    return model.requires_grad_(True)


def _targets(model: Transformer, lora: LoRASpec) -> Iterator[tuple[str, nn.Module]]:
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in lora.targets:
            yield name, module
