"""What Lory is compared with, in its paper and its reviews: arXiv:2405.03133 §4.1, question B9."""

from typing import Any, Literal

from bam_lab.methods.copies_or_experts import CopiesOrExperts
from bam_lab.spec.messages import checked
from bam_lab.spec.methods import SegmentMoEMethod, TokenMergingMethod
from bam_lab.spec.routers import BalanceLoss, ExpertChoiceRouter, TopKRouter

EXPERT_CHOICE = ExpertChoiceRouter(
    score="softmax", select="expert_choice", capacity_factor=1.0, inference_top_k=1
)


class SegmentMoE(CopiesOrExperts):
    """Train experts that whole segments are sent to; see `model/segment_moe.py`."""

    @classmethod
    def describe(
        cls,
        *,
        segment_len: int,
        first_segment: Literal["own_mean", "bos"] = "own_mean",
        ffn_router: TopKRouter | ExpertChoiceRouter = EXPERT_CHOICE,
        balance_loss: BalanceLoss | None = None,
        z_loss: float = 0.0,
        **origin: Any,
    ) -> SegmentMoEMethod:
        """Return the method; the defaults are the paper's rival, expert choice at capacity 1."""
        return checked(
            SegmentMoEMethod,
            method="segment_moe",
            segment_len=segment_len,
            first_segment=first_segment,
            ffn_router=ffn_router,
            balance_loss=balance_loss,
            z_loss=z_loss,
            **origin,
        )


class TokenMerging(CopiesOrExperts):
    """Train experts that are merged for every token; see `model/token_merging.py`."""

    @classmethod
    def describe(cls, **origin: Any) -> TokenMergingMethod:
        """Return the method; nothing in it is open."""
        return checked(TokenMergingMethod, method="token_merging", **origin)
