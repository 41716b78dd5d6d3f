"""What each method fixes: router, losses, attention experts; a union over `method`."""

from typing import Annotated, Literal

from pydantic import Field

from bam_lab.spec.base import Spec
from bam_lab.spec.mixtures import BAMMethod, BTXMethod, SparseUpcyclingMethod
from bam_lab.spec.segments import LoryMethod

__all__ = [
    "BAMMethod",
    "BTXMethod",
    "DenseMethod",
    "LoryMethod",
    "MethodSpec",
    "SparseUpcyclingMethod",
]


class DenseMethod(Spec):
    """Go on training the seed model, unchanged, on the mixture phase's data mix."""

    method: Literal["dense"]


MethodSpec = Annotated[
    DenseMethod | BTXMethod | BAMMethod | SparseUpcyclingMethod | LoryMethod,
    Field(discriminator="method"),
]
