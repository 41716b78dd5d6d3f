"""Three ways to make a mixture whose experts are copies of one model, or dense experts."""

from collections.abc import Sequence
from typing import Any, Self

from bam_lab.methods.dense import Dense
from bam_lab.methods.mixing import draw, mix
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.model import ModelSpec
from bam_lab.train.module import TrainedModule
from bam_lab.train.optim import DEFAULTS, Training


class CopiesOrExperts(TrainedModule):
    """Train such a mixture; `settings` are those of the method's `describe`."""

    @classmethod
    def describe(cls, *args: Any, **settings: Any) -> MethodSpec:
        """Return the method of these settings, with where its experts come from."""
        raise NotImplementedError

    @classmethod
    def from_seed(
        cls,
        seed_model: Dense,
        num_experts: int,
        *,
        rng_seed: int = 0,
        training: Training = DEFAULTS,
        **settings: Any,
    ) -> Self:
        """Copy the seed model's FFN into every expert; `rng_seed` draws the routers."""
        method = cls.describe(num_experts=num_experts, **settings)
        return cls(mix(method, [seed_model], rng_seed), training)

    @classmethod
    def from_experts(
        cls,
        experts: Sequence[Dense],
        *,
        allow_unrelated: bool = False,
        rng_seed: int = 0,
        training: Training = DEFAULTS,
        **settings: Any,
    ) -> Self:
        """Mix dense experts, everything but their FFNs averaged; `rng_seed` draws the routers.

        They must have branched from one model, unless `allow_unrelated`.
        """
        method = cls.describe(**settings)
        return cls(mix(method, experts, rng_seed, allow_unrelated=allow_unrelated), training)

    @classmethod
    def from_scratch(
        cls,
        spec: ModelSpec,
        num_experts: int,
        *,
        rng_seed: int = 0,
        training: Training = DEFAULTS,
        **settings: Any,
    ) -> Self:
        """Draw every weight anew, of shape `spec`."""
        method = cls.describe(num_experts=num_experts, start="scratch", **settings)
        return cls(draw(method, spec, rng_seed), training)
