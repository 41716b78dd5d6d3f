"""Which laws a method is known to break, and why: what tests expect, receipts find, reports say.

A law that is not named here holds, and a proof that finds otherwise has found a bug.
"""

from typing import Literal

from bam_lab.spec.methods import (
    BAMMethod,
    BTXMethod,
    LoryMethod,
    MethodSpec,
    SegmentMoEMethod,
    SMEARMethod,
    SoftMoEMethod,
    SparseUpcyclingMethod,
)
from bam_lab.spec.routers import ExpertChoiceRouter, RouterSpec, TopKRouter

Law = Literal["causality", "causality inside the first segment", "batch invariance"]
Rule = Literal["training", "inference"]
"""A training pass, or a pass without noise and limits: what is evaluated and generated."""


_FIRST: Law = "causality inside the first segment"
_OWN_MEAN = "the first segment is routed by its own mean"


def broken_laws(method: MethodSpec, rule: Rule) -> dict[Law, str]:
    """Return each law that `method` breaks under `rule`, with the reason, a clause."""
    match method:
        case SMEARMethod():
            return {"causality": "a sequence is routed by the mean of all its tokens"}
        case SoftMoEMethod():
            return {"causality": "every slot mixes all tokens of a sequence"}
        case LoryMethod(first_segment="own_mean"):
            return {_FIRST: _OWN_MEAN}
        case SegmentMoEMethod():
            own: dict[Law, str] = {_FIRST: _OWN_MEAN} if method.first_segment == "own_mean" else {}
            return own | (_broken_in_training(method.ffn_router) if rule == "training" else {})
        case (
            BTXMethod(ffn_router=router)
            | BAMMethod(ffn_router=router)
            | SparseUpcyclingMethod(ffn_router=router)
        ) if rule == "training":
            return _broken_in_training(router)
        case _:
            return {}


def mixes_documents(method: MethodSpec, rule: Rule) -> str | None:
    """Return why a token's logits depend on other documents under `rule`; None if they do not.

    Where the model has `cross_document_attention: false`, attention keeps packed documents apart;
    whoever decides for several tokens at once, or lets tokens compete, still mixes them.
    """
    if isinstance(method, LoryMethod) and method.routing == "prefix":
        if method.first_segment == "bos":  # one decision, by an end-of-text token that sees nothing
            return None
        return "a sequence is routed by its first segment, whichever documents it is of"
    if isinstance(method, LoryMethod | SegmentMoEMethod):
        return "a segment is routed by the tokens before it, whichever documents they are of"
    broken = broken_laws(method, rule)
    return broken.get("causality") or broken.get("batch invariance")


def no_generation(method: MethodSpec) -> str | None:
    """Return why the method cannot generate text, a problem for a `SpecError`; None if it can.

    A first segment that looks ahead inside itself is no obstacle: the prompt decides for it.
    """
    broken = broken_laws(method, "inference")
    for law in ("causality", "batch invariance"):
        if law in broken:
            return (
                f"method must have a causal inference rule to generate, got {method.method}: "
                f"{broken[law]}. Evaluate it on whole texts, or generate with another method."
            )
    return None


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
        case SoftMoEMethod():
            return {
                "copies": "experts see slots, which mix all tokens",
                "one expert": "every expert has its slots, whatever the router says",
            }
        case _:
            return {}
