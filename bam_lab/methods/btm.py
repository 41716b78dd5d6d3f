"""Branch-Train-Merge: dense experts side by side (arXiv:2208.03306, arXiv:2303.14177)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import lightning
import torch
from torch import Tensor

from bam_lab.data.tokens.tfidf import statistics
from bam_lab.methods.dense import Dense
from bam_lab.model.checks import check_alike
from bam_lab.model.ensemble import Ensemble, assemble
from bam_lab.spec.messages import checked
from bam_lab.spec.methods import BTMMethod


class BTM(lightning.LightningModule):
    """Mix whole models' next-token distributions; there is nothing to train."""

    def __init__(self, model: Ensemble):
        """Hold what is evaluated."""
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the log-probabilities [B, T, V] after each of `tokens` [B, T]."""
        return self.model.log_probs(tokens)

    @classmethod
    def from_experts(
        cls,
        experts: Sequence[Dense],
        tokens_dir: str | Path,
        mixes: Sequence[Mapping[str, float]],
        *,
        top_k: int = 1,
        temperature: float = 0.1,
    ) -> Self:
        """Put dense experts side by side; each is known by the training text of its data mix.

        Args:
            experts: of one shape and tokenizer.
            tokens_dir: encoded text (`tokens/` of a tokenizer stage).
            mixes: each expert's weights over domains.
            top_k: experts whose distributions are mixed.
            temperature: divides the cosines between text and domains.

        Raises:
            CheckpointError: the experts differ in shape or tokenizer.
        """
        names = [expert.folder or f"expert {i}" for i, expert in enumerate(experts)]
        specs = [expert.model.spec for expert in experts]
        check_alike(names, specs, [expert.tokenizer for expert in experts])
        method = checked(BTMMethod, method="btm", top_k=top_k, temperature=temperature)
        idf, centroids = map(torch.from_numpy, statistics(Path(tokens_dir), mixes))
        states = [expert.model.state_dict() for expert in experts]
        return cls(assemble(specs[0], method, states, idf, centroids))
