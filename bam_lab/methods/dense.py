"""A dense model: the seed model, a branch of it, or the baseline that goes on training it."""

from copy import deepcopy
from pathlib import Path
from typing import Self

import torch

from bam_lab.errors import CheckpointError
from bam_lab.model import checkpoint
from bam_lab.model.transformer import Transformer, initialise
from bam_lab.spec.branches import LoRASpec
from bam_lab.spec.methods import DenseMethod
from bam_lab.spec.model import ModelSpec
from bam_lab.train.module import TrainedModule
from bam_lab.train.optim import DEFAULTS, Training


class Dense(TrainedModule):
    """Train one dense transformer.

    Attributes:
        folder: the checkpoint that it was read from; "" for none.
        tokenizer: SHA-256 of the tokenizer.json that its tokens are of; None where not known.
    """

    folder: str = ""
    tokenizer: str | None = None

    @classmethod
    def from_scratch(
        cls, spec: ModelSpec, *, rng_seed: int = 0, training: Training = DEFAULTS
    ) -> Self:
        """Initialise a new model of shape `spec`."""
        model = Transformer(spec, DenseMethod(method="dense"), 1)
        return cls(initialise(model, torch.Generator().manual_seed(rng_seed)), training)

    @classmethod
    def from_seed(
        cls,
        seed_model: "Dense",
        *,
        lora: LoRASpec | None = None,
        rng_seed: int = 0,
        training: Training = DEFAULTS,
    ) -> Self:
        """Branch: copy a trained model, with a fresh optimizer.

        With `lora` only adapters train, drawn by `rng_seed`; `merged` then gives the whole model.
        """
        branch = cls(deepcopy(seed_model.model), training)
        branch.tokenizer = seed_model.tokenizer
        if lora is not None:
            from bam_lab.hf.lora import attach  # peft, of the extra `hf`

            attach(branch.model, lora, rng_seed)
        return branch

    def merged(self) -> "Dense":
        """Return a low-rank branch as a whole dense model, ready to be an expert."""
        from bam_lab.hf.lora import merge

        whole = Dense(merge(deepcopy(self.model)), self.training_settings)
        whole.tokenizer = self.tokenizer
        return whole

    @classmethod
    def from_checkpoint(cls, folder: str | Path, *, training: Training = DEFAULTS) -> Self:
        """Read a dense model, such as the `checkpoint/` of a seed_model or expert stage.

        Raises:
            CheckpointError: it cannot be used, or is no dense model.
        """
        held = checkpoint.read(Path(folder))
        if not isinstance(held.method, DenseMethod):
            raise CheckpointError(
                f"{folder} must hold a dense model, got a mixture by {held.method.method}. Give a "
                "dense expert, or read it with bam_lab.model.checkpoint.load."
            )
        model = checkpoint.build(held.spec, held.method, 1, held.state)
        dense = cls(model, training)
        dense.folder, dense.tokenizer = str(folder), held.tokenizer
        return dense
