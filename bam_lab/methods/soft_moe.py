"""Soft MoE: experts process slots, mixtures of all tokens (arXiv:2308.00951); not causal."""

from typing import Any

from bam_lab.methods.copies_or_experts import CopiesOrExperts
from bam_lab.spec.messages import checked
from bam_lab.spec.methods import SoftMoEMethod


class SoftMoE(CopiesOrExperts):
    """Train a Soft MoE; see `model/soft_moe.py`."""

    @classmethod
    def describe(cls, *, slots_per_expert: int, **origin: Any) -> SoftMoEMethod:
        """Return the method; as many slots in all as tokens cost what a dense FFN does (§2.1)."""
        return checked(
            SoftMoEMethod, method="soft_moe", slots_per_expert=slots_per_expert, **origin
        )
