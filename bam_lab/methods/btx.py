"""BTX: FFN experts from dense experts, everything else averaged (arXiv:2403.07816)."""

from collections.abc import Sequence
from typing import Any, Literal, Self

from torch import Tensor

from bam_lab.methods.dense import Dense
from bam_lab.methods.lory import Lory
from bam_lab.methods.mixing import mix
from bam_lab.spec.messages import checked
from bam_lab.spec.methods import BTXMethod
from bam_lab.spec.routers import (
    BalanceLoss,
    ReLURouter,
    RouterSpec,
    SampleRouter,
    SoftRouter,
    TopKRouter,
)
from bam_lab.train.module import TrainedModule
from bam_lab.train.optim import DEFAULTS, Training
from bam_lab.upcycle.convert import convert

TOP_2 = TopKRouter(score="softmax", select="top_k", top_k=2, renormalize=True)
BALANCE = BalanceLoss(form="gates", weight=0.01)

# The other routers of §4.3, and top-3 of the BAM rebuttal.
SOFT = SoftRouter(score="softmax", select="all")
SWITCH = TopKRouter(
    score="softmax", select="top_k", top_k=1, renormalize=False, capacity_factor=1.5
)
SAMPLE_TOP_1 = SampleRouter(
    score="softmax", select="sample", estimator="soft_value", soft_first_layer=True
)
TOP_3 = TopKRouter(score="softmax", select="top_k", top_k=3, renormalize=True)

RELU = ReLURouter(score="relu", select="all", active_experts=1)
"""ReMoE's (arXiv:2412.14711 §3), at the cost of top-1."""


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
        shared_expert: bool = False,
        token_counts: Tensor | None = None,
        allow_unrelated: bool = False,
        rng_seed: int = 0,
        training: Training = DEFAULTS,
    ) -> Self:
        """Mix dense experts; `rng_seed` draws the routers.

        Experts are `whole` FFNs, each FFN `split` into `chunks`, or `blended` of all (§4.3). They
        must have branched from one model, unless `allow_unrelated`. `shared_expert` puts an FFN
        that every token uses beside them (`spec/mixtures.py`). `token_counts` [V], how often each
        token stands in the training text, are for a balanced hash alone.
        """
        method = checked(
            BTXMethod,
            method="btx",
            ffn_router=ffn_router,
            balance_loss=balance_loss,
            z_loss=z_loss,
            expert_layout=expert_layout,
            chunks=chunks,
            frozen_experts=frozen_experts,
            shared_expert=shared_expert,
        )
        mixture = mix(
            method,
            experts,
            rng_seed,
            allow_unrelated=allow_unrelated,
            token_counts=token_counts,
        )
        return cls(mixture, training)

    @classmethod
    def from_lory(
        cls,
        lory: Lory,
        *,
        ffn_router: RouterSpec = TOP_2,
        balance_loss: BalanceLoss | None = BALANCE,
        training: Training = DEFAULTS,
    ) -> Self:
        """Go on with a trained Lory's experts and router under token routing."""
        method = checked(BTXMethod, method="btx", ffn_router=ffn_router, balance_loss=balance_loss)
        return cls(convert(lory.model, method), training)

    @classmethod
    def from_seed(cls, seed_model: Dense, num_experts: int, **settings: Any) -> Self:
        """Mix copies of one model: sparse upcycling, which is BTX without expert training."""
        return cls.from_experts([seed_model] * num_experts, **settings)
