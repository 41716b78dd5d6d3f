"""What each method fixes: router, losses, attention experts; a union over `method`."""

from typing import Annotated

from pydantic import Field

from bam_lab.spec.conversion import LoryToSparseMethod
from bam_lab.spec.dense import AverageMethod, BTMMethod, DenseMethod
from bam_lab.spec.mixtures import BAMMethod, BTXMethod, SparseUpcyclingMethod
from bam_lab.spec.segments import (
    LoryMethod,
    SegmentMoEMethod,
    SMEARMethod,
    SoftMoEMethod,
    TokenMergingMethod,
)

__all__ = [
    "AverageMethod",
    "BAMMethod",
    "BTMMethod",
    "BTXMethod",
    "DenseMethod",
    "LoryMethod",
    "LoryToSparseMethod",
    "MethodSpec",
    "SMEARMethod",
    "SegmentMoEMethod",
    "SoftMoEMethod",
    "SparseUpcyclingMethod",
    "TokenMergingMethod",
    "Unrouted",
]


Unrouted = DenseMethod | AverageMethod | BTMMethod
"""Methods without a router."""

MethodSpec = Annotated[
    DenseMethod
    | AverageMethod
    | BTMMethod
    | LoryToSparseMethod
    | BTXMethod
    | BAMMethod
    | SparseUpcyclingMethod
    | LoryMethod
    | SegmentMoEMethod
    | TokenMergingMethod
    | SMEARMethod
    | SoftMoEMethod,
    Field(discriminator="method"),
]
