"""The average of dense experts: one dense model, untrained after it (arXiv:2203.05482)."""

from collections.abc import Sequence
from typing import Self

from bam_lab.methods.dense import Dense
from bam_lab.methods.mixing import mix
from bam_lab.spec.messages import checked
from bam_lab.spec.methods import AverageMethod
from bam_lab.train.module import TrainedModule
from bam_lab.train.optim import DEFAULTS, Training


class Average(TrainedModule):
    """Hold a mean of dense models, tensor by tensor; training it goes on from there."""

    @classmethod
    def from_experts(
        cls,
        experts: Sequence[Dense],
        *,
        weights: Sequence[float] | None = None,
        allow_unrelated: bool = False,
        training: Training = DEFAULTS,
    ) -> Self:
        """Average dense experts, by `weights` in their order or uniformly."""
        named = None
        if weights is not None:
            named = {str(i): weight for i, weight in enumerate(weights)}
        method = checked(AverageMethod, method="average", weights=named)
        return cls(mix(method, experts, 0, allow_unrelated=allow_unrelated), training)
