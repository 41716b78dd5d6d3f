"""A causal language model of transformers, for evaluation beside ours.

It offers what `evaluate/likelihood.py` asks of any other model. Only files on disk are read,
weights only as safetensors, and no code that stands beside them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from bam_lab.errors import CheckpointError

_LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx")


@dataclass(frozen=True)
class HFCausal:
    """Hold a model of transformers, in evaluation mode."""

    model: nn.Module

    @property
    def vocab_size(self) -> int:
        """Return how many tokens it knows."""
        return int(self._config.vocab_size)

    @property
    def max_seq_len(self) -> int:
        """Return how many tokens a row may have.

        Raises:
            CheckpointError: its configuration does not say.
        """
        for name in _LENGTHS:
            if (length := getattr(self._config, name, None)) is not None:
                return int(length)
        raise CheckpointError(
            f"config.json must say how long a row may be ({' or '.join(_LENGTHS)}), got none of "
            "them. Add max_position_embeddings."
        )

    @property
    def device(self) -> torch.device:
        """Return where its weights are."""
        return next(self.model.parameters()).device

    @property
    def _config(self) -> Any:
        return self.model.config

    def next_token_logits(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return the logits of the token after each of `tokens`."""
        logits: Tensor = self.model(input_ids=tokens, use_cache=False).logits
        return logits


def load(folder: Path) -> tuple[HFCausal, Any, int]:
    """Read a model in float32, its tokenizer (of `tokenizers`) and its end-of-text token.

    Raises:
        CheckpointError: the folder holds none that can be read so.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder} must be a folder of transformers' files, got none.")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, dtype=torch.float32
        )
    except (OSError, ValueError, KeyError) as error:
        told = " ".join(str(error).split())
        raise CheckpointError(
            f"{folder} must hold config.json, model.safetensors and tokenizer.json of a causal "
            f"language model that needs no code of its own, got: {told}"
        ) from error
    if tokenizer.eos_token_id is None or not tokenizer.is_fast:
        raise CheckpointError(
            f"{folder} must have a tokenizer.json with an end-of-text token (eos_token), got none. "
            "Add them: a text without context begins with that token."
        )
    model.train(False)
    return HFCausal(model), tokenizer.backend_tokenizer, int(tokenizer.eos_token_id)
