"""BTX: FFN experts from dense experts, everything else averaged (arXiv:2403.07816)."""

from collections.abc import Sequence
from typing import Any, Literal, Self

from bam_lab.methods.base import mix
from bam_lab.methods.dense import Dense
from bam_lab.spec.methods import BTXMethod
from bam_lab.spec.routers import BalanceLoss, RouterSpec, TopKRouter
from bam_lab.train.module import TrainedModule
from bam_lab.train.optim import DEFAULTS, Training

TOP_2 = TopKRouter(score="softmax", select="top_k", top_k=2, renormalize=True)
BALANCE = BalanceLoss(form="gates", weight=0.01)


class BTX(TrainedModule):
    """Train a Branch-Train-MiX mixture; the defaults are the paper's (§3)."""

    @classmethod
    def from_experts(
        cls,
        experts: Sequence[Dense],
        *,
        ffn_router: RouterSpec = TOP_2,
        balance_loss: BalanceLoss | None = BALANCE,
        z_loss: float = 0.0,
        expert_layout: Literal["whole", "split", "blended"] = "whole",
        chunks: int | None = None,
        frozen_experts: bool = False,
        allow_unrelated: bool = False,
        rng_seed: int = 0,
        training: Training = DEFAULTS,
    ) -> Self:
        """Mix dense experts; `rng_seed` draws the routers.

        Experts are `whole` FFNs, each FFN `split` into `chunks`, or `blended` of all (§4.3). They
        must have branched from one model, unless `allow_unrelated`.
        """
        method = BTXMethod(
            method="btx",
            ffn_router=ffn_router,
            balance_loss=balance_loss,
            z_loss=z_loss,
            expert_layout=expert_layout,
            chunks=chunks,
            frozen_experts=frozen_experts,
        )
        mixture = mix(method, experts, rng_seed, allow_unrelated=allow_unrelated)
        return cls(mixture, training)

    @classmethod
    def from_seed(cls, seed_model: Dense, num_experts: int, **settings: Any) -> Self:
        """Mix copies of one model: sparse upcycling, which is BTX without expert training."""
        return cls.from_experts([seed_model] * num_experts, **settings)
