"""Build mixtures from dense modules, through the table of origins."""

from collections.abc import Sequence

import torch

from bam_lab.methods.dense import Dense
from bam_lab.model.checkpoint import build
from bam_lab.model.transformer import Transformer
from bam_lab.spec.experts import num_experts_of
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.model import ModelSpec
from bam_lab.upcycle.execute import upcycle


def mix(method: MethodSpec, experts: Sequence[Dense], rng_seed: int) -> Transformer:
    """Return the untrained mixture of the dense models it reads, in router-column order."""
    spec = experts[0].model.spec
    generator = torch.Generator().manual_seed(rng_seed)
    state = upcycle(method, spec, [expert.model.state_dict() for expert in experts], generator)
    return build(spec, method, num_experts_of(method, len(experts)), state)


def draw(method: MethodSpec, spec: ModelSpec, rng_seed: int) -> Transformer:
    """Return the untrained mixture of a method that starts from scratch, of shape `spec`."""
    state = upcycle(method, spec, [], torch.Generator().manual_seed(rng_seed))
    return build(spec, method, num_experts_of(method, 0), state)
