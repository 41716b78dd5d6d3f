"""Which laws a method is known to break, and why: what tests expect, receipts find, reports say.

A law that is not named here holds, and a proof that finds otherwise has found a bug.
"""

from typing import Literal

from bam_lab.spec.methods import LoryMethod, MethodSpec

Law = Literal["causality", "causality inside the first segment", "batch invariance"]
Rule = Literal["training", "inference"]
"""A training pass, or a pass without noise and limits: what is evaluated and generated."""


def broken_laws(method: MethodSpec, rule: Rule) -> dict[Law, str]:
    """Return each law that `method` breaks under `rule`, with the reason, a clause."""
    match method:
        case LoryMethod(first_segment="own_mean"):
            return {
                "causality inside the first segment": "the first segment is routed by its own mean"
            }
        case _:
            return {}
