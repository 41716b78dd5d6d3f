"""Methods whose mixture phase has two parts, with a conversion between them."""

from typing import Annotated, Literal

from pydantic import Field

from bam_lab.spec.base import NonNegativeFloat, PositiveInt
from bam_lab.spec.mixtures import BTXMethod
from bam_lab.spec.routers import AttentionRouterSpec, BalanceLoss
from bam_lab.spec.segments import CopiesOrExperts, LoryMethod


class LoryToSparseMethod(CopiesOrExperts):
    """Train Lory, then go on with its experts and router under token routing.

    Attributes:
        segment_len, first_segment: of the first part, as for Lory.
        ffn_router: how tokens are routed in the second part, whose optimizer is fresh.
        sparse_share: share of the mixture phase's budget (what the match makes equal) that the
            second part gets.
        balance_loss, z_loss: of the second part.
    """

    method: Literal["lory_to_sparse"]
    segment_len: PositiveInt
    first_segment: Literal["own_mean", "bos", "uniform"]
    ffn_router: AttentionRouterSpec
    sparse_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    balance_loss: BalanceLoss | None = BalanceLoss(form="tokens", weight=0.01)
    z_loss: NonNegativeFloat = 0.0

    @property
    def lory(self) -> LoryMethod:
        """The method of the first part."""
        return LoryMethod(
            method="lory",
            segment_len=self.segment_len,
            first_segment=self.first_segment,
            num_experts=self.num_experts,
            start=self.start,
            experts=self.experts,
            router_init_std=self.router_init_std,
        )

    @property
    def sparse(self) -> BTXMethod:
        """The method of the second part: tokens routed to FFN experts in every layer."""
        return BTXMethod(
            method="btx",
            ffn_router=self.ffn_router,
            balance_loss=self.balance_loss,
            z_loss=self.z_loss,
            router_init_std=self.router_init_std,
        )
