"""The copy of a model that proofs are tried on: its experts differ, its routers have opinions.

Experts that are equal at step 0, or routers near uniform, would hide what the choice between them
breaks.
"""

from copy import deepcopy

import torch
from torch import Tensor

from bam_lab.model.context import Draw
from bam_lab.model.transformer import Transformer
from bam_lab.spec.experts import expert_tensors, has_bos
from bam_lab.spec.methods import MethodSpec

TOLERANCE = 1e-4
"""On logits of order 1; grouped rows are products of other sizes, which moves last digits."""
STEP = 100
"""The optimizer step of a proof's training pass: past the first, where schedules begin."""
_PERTURBATION = 0.02
_OPINION = 0.5  # deviation of a probe's router weights: logits of order 1


def perturbed(model: Transformer) -> Transformer:
    """Return a copy whose stacked experts differ, whatever they were."""
    copy = deepcopy(model)
    generator = torch.Generator().manual_seed(0)
    stacked = expert_tensors(model.method, model.spec.num_layers)
    with torch.no_grad():
        for name, parameter in copy.named_parameters():
            if name in stacked:
                noise = torch.empty_like(parameter).normal_(generator=generator)
                parameter.add_(noise, alpha=_PERTURBATION)
    return copy


@torch.no_grad()
def opinionated(model: Transformer) -> Transformer:
    """Give every router of `model` weights that tell its inputs apart; return `model`."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if name.endswith("router"):
            parameter.normal_(std=_OPINION, generator=generator)
    return model


def training_pass(step: int = STEP) -> Draw:
    """Return a training pass whose noise is the same each time."""
    return Draw(step, torch.Generator().manual_seed(0))


def by_place(decided: Tensor, method: MethodSpec, places: int) -> Tensor:
    """Return what was decided [B, P, X] for each of `places` [B, T, X]; decisions may be segments'.

    The place of an end-of-text token before the sequence has a decision of its own; a decision for
    the whole sequence stands once.
    """
    segment_len = getattr(method, "segment_len", None)
    if segment_len is None or decided.shape[1] == 1:
        return decided
    bos = int(has_bos(method))
    tokens = decided[:, bos:].repeat_interleave(segment_len, 1)[:, : places - bos]
    return torch.cat((decided[:, :bos], tokens), 1)
