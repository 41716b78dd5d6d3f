"""A dense model: the seed model, a branch of it, or the baseline that goes on training it."""

from copy import deepcopy
from typing import Self

import torch

from bam_lab.model.transformer import Transformer, initialise
from bam_lab.spec.methods import DenseMethod
from bam_lab.spec.model import ModelSpec
from bam_lab.train.module import TrainedModule
from bam_lab.train.optim import DEFAULTS, Training


class Dense(TrainedModule):
    """Train one dense transformer."""

    @classmethod
    def from_scratch(
        cls, spec: ModelSpec, *, rng_seed: int = 0, training: Training = DEFAULTS
    ) -> Self:
        """Initialise a new model of shape `spec`."""
        model = Transformer(spec, DenseMethod(method="dense"), 1)
        return cls(initialise(model, torch.Generator().manual_seed(rng_seed)), training)

    @classmethod
    def from_seed(cls, seed_model: "Dense", *, training: Training = DEFAULTS) -> Self:
        """Branch: copy a trained model, with a fresh optimizer."""
        return cls(deepcopy(seed_model.model), training)
