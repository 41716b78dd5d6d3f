"""Sparse Upcycling: copies of the seed model's FFN as experts (arXiv:2212.05055)."""

from typing import Self

from bam_lab.methods.dense import Dense
from bam_lab.methods.mixing import draw, mix
from bam_lab.spec.messages import checked
from bam_lab.spec.methods import SparseUpcyclingMethod
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.routers import BalanceLoss, ExpertChoiceRouter, RouterSpec, TopKRouter
from bam_lab.train.module import TrainedModule
from bam_lab.train.optim import DEFAULTS, Training

TOP_2 = TopKRouter(score="softmax", select="top_k", top_k=2, renormalize=False)
BALANCE = BalanceLoss(form="tokens", weight=0.01)
EXPERT_CHOICE = ExpertChoiceRouter(
    score="softmax", select="expert_choice", capacity_factor=2.0, inference_top_k=2
)
"""Its encoder's router (§4); what a decoder takes at inference is ours."""


class SparseUpcycling(TrainedModule):
    """Train a sparsely upcycled model; the defaults are its language decoder's (§4)."""

    @classmethod
    def from_seed(
        cls,
        seed_model: Dense,
        num_experts: int,
        *,
        layers: str = "every_other",
        ffn_router: RouterSpec = TOP_2,
        copy_noise_std: float = 0.0,
        reinit_share: float = 0.0,
        granularity: int = 1,
        copied_experts: int | None = None,
        shared_expert: bool = False,
        balance_loss: BalanceLoss | None = BALANCE,
        z_loss: float = 0.0,
        rng_seed: int = 0,
        training: Training = DEFAULTS,
    ) -> Self:
        """Copy the seed model's FFN; `layers` as in the spec: all, every_other or last_<n>.

        `reinit_share` is Drop-Upcycling's, `granularity` cuts each copy into that many experts,
        `copied_experts` is how many are copies at all. `shared_expert` puts one more copy, which
        every token uses, beside the routed ones (`spec/mixtures.py`). `rng_seed` draws the
        routers, and what is drawn of copies.
        """
        method = checked(
            SparseUpcyclingMethod,
            method="sparse_upcycling",
            num_experts=num_experts,
            layers=layers,
            ffn_router=ffn_router,
            copy_noise_std=copy_noise_std,
            reinit_share=reinit_share,
            granularity=granularity,
            copied_experts=copied_experts,
            shared_expert=shared_expert,
            balance_loss=balance_loss,
            z_loss=z_loss,
        )
        return cls(mix(method, [seed_model], rng_seed), training)

    @classmethod
    def from_scratch(
        cls,
        spec: ModelSpec,
        num_experts: int,
        *,
        layers: str = "every_other",
        ffn_router: RouterSpec = TOP_2,
        shared_expert: bool = False,
        balance_loss: BalanceLoss | None = BALANCE,
        z_loss: float = 0.0,
        rng_seed: int = 0,
        training: Training = DEFAULTS,
    ) -> Self:
        """Draw the same mixture anew: the rival that upcycling is compared with (§4.2)."""
        method = checked(
            SparseUpcyclingMethod,
            method="sparse_upcycling",
            start="scratch",
            num_experts=num_experts,
            layers=layers,
            ffn_router=ffn_router,
            shared_expert=shared_expert,
            balance_loss=balance_loss,
            z_loss=z_loss,
        )
        return cls(draw(method, spec, rng_seed), training)
