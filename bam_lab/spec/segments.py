"""Methods that route whole segments or merge experts' parameters: Lory and its rivals."""

from typing import Literal

from bam_lab.spec.base import PositiveFloat, PositiveInt, Spec
from bam_lab.spec.mixtures import NumExperts


class LoryMethod(Spec):
    """Merge all FFN experts into one FFN a segment, by the segment before (arXiv:2405.03133 §3).

    Attributes:
        segment_len: tokens that share one merged FFN; divides `max_seq_len`, at most half of it.
        first_segment: how the first segment weighs the experts: `own_mean`, by its own mean, with
            no gradient to that decision (the paper's; its tokens see later ones of the segment), or
            `uniform`, all alike (causal).
        num_experts: that many copies of the seed model; absent where dense experts are mixed.
        experts: names of the dense models that become experts, as for other mixtures.
        router_init_std: standard deviation of the routers' normal initialisation.
    """

    method: Literal["lory"]
    segment_len: PositiveInt
    first_segment: Literal["own_mean", "uniform"]
    num_experts: NumExperts | None = None
    experts: tuple[str, ...] = ()
    router_init_std: PositiveFloat = 0.02
