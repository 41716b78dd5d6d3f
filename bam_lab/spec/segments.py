"""Methods that route whole segments or merge experts' parameters: Lory and its rivals.

{soft, sparse} x {token, segment} is a clean 2x2 (question B9): `token_merging` and BTX's or Sparse
Upcycling's top-k at token level, `lory` and `segment_moe` at segment level.
"""

from typing import Annotated, Literal

from pydantic import Field

from bam_lab.spec.base import NonNegativeFloat, PositiveFloat, PositiveInt, Spec
from bam_lab.spec.mixtures import NumExperts, Start
from bam_lab.spec.routers import BalanceLoss, ExpertChoiceRouter, TopKRouter


class CopiesOrExperts(Spec):
    """Hold what says which models the experts are made of: copies of one, or dense experts.

    Attributes:
        num_experts: that many copies of the seed model; absent where dense experts are mixed.
        start: `scratch` draws the copies, and all else, anew; for `num_experts` alone.
        experts: names of the dense models that become experts, as for other mixtures.
        router_init_std: standard deviation of the routers' normal initialisation.
    """

    num_experts: NumExperts | None = None
    start: Start = "seed_model"
    experts: tuple[str, ...] = ()
    router_init_std: PositiveFloat = 0.02


class LoryMethod(CopiesOrExperts):
    """Merge all FFN experts into one FFN a segment, by the segment before (arXiv:2405.03133 §3).

    Attributes:
        segment_len: tokens that share one merged FFN; divides `max_seq_len`, at most half of it.
        first_segment: how the first segment weighs the experts. `own_mean`: by its own mean, with
            no gradient to that decision (the paper's; its tokens see later ones of the segment).
            `bos`: by an end-of-text token before the sequence, a segment of its own (causal, a
            reviewer's proposal). `uniform`: all alike (causal).
        routing: `causal`, or `prefix`: the first segment's decision holds for the whole sequence
            (the paper's ablation, §4.4).
    """

    method: Literal["lory"]
    segment_len: PositiveInt
    first_segment: Literal["own_mean", "bos", "uniform"]
    routing: Literal["causal", "prefix"] = "causal"


class SegmentMoEMethod(CopiesOrExperts):
    """Send whole segments to a few experts, chosen by Lory's router (arXiv:2405.03133 §4.1).

    The paper's rival is expert choice with capacity factor 1; its expert choice at token level is
    `btx` or `sparse_upcycling` with such a router.

    Attributes:
        segment_len: tokens that go to the same experts, as for Lory.
        first_segment: as for Lory; `uniform` would always choose the first experts.
        ffn_router: how a segment chooses experts by the segment before it; under expert choice,
            experts choose among all segments in training, and segments choose their likeliest ones
            at inference.
        balance_loss: over segments; None in the paper, whose experts choose.
    """

    method: Literal["segment_moe"]
    segment_len: PositiveInt
    first_segment: Literal["own_mean", "bos"]
    ffn_router: Annotated[TopKRouter | ExpertChoiceRouter, Field(discriminator="select")]
    balance_loss: BalanceLoss | None = None
    z_loss: NonNegativeFloat = 0.0


class TokenMergingMethod(CopiesOrExperts):
    """Merge all FFN experts for every token by its own gates: Lory without segments.

    Merged matrices are linear in the experts, so each product is one over all experts, and the work
    is that of running every expert: for small models only.
    """

    method: Literal["token_merging"]


class SMEARMethod(CopiesOrExperts):
    """Merge all FFN experts once a sequence, by the mean over all of it (arXiv:2306.03745 §3).

    Not causal: every token's FFN depends on all tokens.
    """

    method: Literal["smear"]


class SoftMoEMethod(CopiesOrExperts):
    """Give experts slots, each a weighted mean of all tokens (arXiv:2308.00951 §2.1).

    Not causal: slots mix all tokens of a sequence.

    Attributes:
        slots_per_expert: slots that each expert processes for one sequence.
    """

    method: Literal["soft_moe"]
    slots_per_expert: PositiveInt
