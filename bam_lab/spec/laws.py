"""Which laws a method is known to break, and why: what tests expect, receipts find, reports say.

A law that is not named here holds, and a proof that finds otherwise has found a bug.
"""

from typing import Literal

from bam_lab.spec.methods import (
    BAMMethod,
    BTXMethod,
    LoryMethod,
    MethodSpec,
    SparseUpcyclingMethod,
)
from bam_lab.spec.routers import ExpertChoiceRouter, RouterSpec, TopKRouter

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
        case (
            BTXMethod(ffn_router=router)
            | BAMMethod(ffn_router=router)
            | SparseUpcyclingMethod(ffn_router=router)
        ) if rule == "training":
            return _broken_in_training(router)
        case _:
            return {}


def _broken_in_training(router: RouterSpec) -> dict[Law, str]:
    match router:
        case TopKRouter(capacity_factor=float()):
            return {"batch invariance": "an expert's places are shared by the whole batch"}
        case ExpertChoiceRouter(group="batch"):
            return {
                "causality": "experts choose among all tokens, later ones too",
                "batch invariance": "tokens of all rows compete for the experts",
            }
        case ExpertChoiceRouter():
            return {"causality": "experts choose among all tokens of a row, later ones too"}
        case _:
            return {}


Identity = Literal["copies", "permutation", "one expert"]
"""What holds whatever the weights: a mixture of equal experts is the dense model scaled by its
gates; experts and router columns can be reordered together; a router can be forced to one expert
(`upcycle/proofs_origins.py`)."""


def broken_identities(method: MethodSpec) -> dict[Identity, str]:
    """Return each identity that `method` breaks under the inference rule, with the reason."""
    match method:
        case LoryMethod(first_segment="uniform"):
            return {"one expert": "the first segment asks no router"}
        case _:
            return {}
