"""Build mixtures from dense modules, through the table of origins."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bam_lab.errors import SpecError
from bam_lab.methods.dense import Dense
from bam_lab.model.checkpoint import build
from bam_lab.model.checks import check_alike
from bam_lab.model.transformer import Transformer
from bam_lab.spec.experts import is_mixture, num_experts_of
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.model import ModelSpec
from bam_lab.upcycle.execute import upcycle
from bam_lab.upcycle.provenance import check_related


def mix(
    method: MethodSpec,
    experts: Sequence[Dense],
    rng_seed: int,
    *,
    allow_unrelated: bool = False,
    token_counts: Tensor | None = None,
) -> Transformer:
    """Return the untrained mixture of the dense models it reads, in router-column order.

    `token_counts` are for a balanced hash.

    Raises:
        SpecError: they are too few.
        CheckpointError: they differ in shape or tokenizer, or share no seed model, which
            `allow_unrelated` lets pass.
    """
    if not experts or (is_mixture(method) and num_experts_of(method, len(experts)) < 2):
        raise SpecError(
            f"experts must be two dense models or more, got {len(experts)}: there would be nothing "
            "to choose. Give another."
        )
    names = [expert.folder or f"expert {i}" for i, expert in enumerate(experts)]
    specs, states = zip(*((e.model.spec, e.model.state_dict()) for e in experts), strict=True)
    check_alike(names, specs, [expert.tokenizer for expert in experts])
    if not allow_unrelated:
        check_related(names, states)
    spec = specs[0]
    generator = torch.Generator().manual_seed(rng_seed)
    state = upcycle(method, spec, states, generator, token_counts)
    return build(spec, method, num_experts_of(method, len(experts)), state)


def draw(method: MethodSpec, spec: ModelSpec, rng_seed: int) -> Transformer:
    """Return the untrained mixture of a method that starts from scratch, of shape `spec`."""
    state = upcycle(method, spec, [], torch.Generator().manual_seed(rng_seed))
    return build(spec, method, num_experts_of(method, 0), state)
