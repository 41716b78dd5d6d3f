"""Lory: FFN experts merged once a segment, by the segment before it (arXiv:2405.03133)."""

from typing import Any, Literal

from bam_lab.methods.copies_or_experts import CopiesOrExperts
from bam_lab.spec.messages import checked
from bam_lab.spec.methods import LoryMethod


class Lory(CopiesOrExperts):
    """Train a Lory mixture, from the language-model loss alone (§3); see `model/lory.py`."""

    @classmethod
    def describe(
        cls,
        *,
        segment_len: int,
        first_segment: Literal["own_mean", "bos", "uniform"] = "own_mean",
        routing: Literal["causal", "prefix"] = "causal",
        **origin: Any,
    ) -> LoryMethod:
        """Return the method; the defaults are the paper's."""
        return checked(
            LoryMethod,
            method="lory",
            segment_len=segment_len,
            first_segment=first_segment,
            routing=routing,
            **origin,
        )
