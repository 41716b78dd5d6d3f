"""Lory: FFN experts merged once a segment, by the segment before it (arXiv:2405.03133)."""

from collections.abc import Sequence
from typing import Literal, Self

from bam_lab.methods.base import mix
from bam_lab.methods.dense import Dense
from bam_lab.spec.methods import LoryMethod
from bam_lab.train.module import TrainedModule
from bam_lab.train.optim import DEFAULTS, Training


class Lory(TrainedModule):
    """Train a Lory mixture, from the language-model loss alone (§3); see `model/lory.py`."""

    @classmethod
    def from_seed(
        cls,
        seed_model: Dense,
        num_experts: int,
        *,
        segment_len: int,
        first_segment: Literal["own_mean", "uniform"] = "own_mean",
        rng_seed: int = 0,
        training: Training = DEFAULTS,
    ) -> Self:
        """Copy the seed model's FFN into every expert; `rng_seed` draws the routers."""
        method = LoryMethod(
            method="lory",
            segment_len=segment_len,
            first_segment=first_segment,
            num_experts=num_experts,
        )
        return cls(mix(method, [seed_model], rng_seed), training)

    @classmethod
    def from_experts(
        cls,
        experts: Sequence[Dense],
        *,
        segment_len: int,
        first_segment: Literal["own_mean", "uniform"] = "own_mean",
        rng_seed: int = 0,
        training: Training = DEFAULTS,
    ) -> Self:
        """Mix dense experts, everything but their FFNs averaged; `rng_seed` draws the routers."""
        method = LoryMethod(method="lory", segment_len=segment_len, first_segment=first_segment)
        return cls(mix(method, experts, rng_seed), training)
