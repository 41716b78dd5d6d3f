"""SMEAR: FFN experts merged once a sequence, by all of it (arXiv:2306.03745); not causal."""

from typing import Any

from bam_lab.methods.copies_or_experts import CopiesOrExperts
from bam_lab.spec.messages import checked
from bam_lab.spec.methods import SMEARMethod


class SMEAR(CopiesOrExperts):
    """Train a SMEAR mixture; see `model/smear.py`."""

    @classmethod
    def describe(cls, **origin: Any) -> SMEARMethod:
        """Return the method; nothing in it is open."""
        return checked(SMEARMethod, method="smear", **origin)
