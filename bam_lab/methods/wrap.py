"""Wrap a model that already exists, such as one read from a checkpoint."""

from typing import assert_never

from bam_lab.methods.bam import BAM
from bam_lab.methods.btx import BTX
from bam_lab.methods.dense import Dense
from bam_lab.methods.lory import Lory
from bam_lab.methods.lory_rivals import SegmentMoE, TokenMerging
from bam_lab.methods.smear import SMEAR
from bam_lab.methods.soft_moe import SoftMoE
from bam_lab.methods.sparse_upcycling import SparseUpcycling
from bam_lab.model.transformer import Transformer
from bam_lab.spec.methods import (
    AverageMethod,
    BAMMethod,
    BTMMethod,
    BTXMethod,
    DenseMethod,
    LoryMethod,
    LoryToSparseMethod,
    SegmentMoEMethod,
    SMEARMethod,
    SoftMoEMethod,
    SparseUpcyclingMethod,
    TokenMergingMethod,
)
from bam_lab.train.module import TrainedModule
from bam_lab.train.optim import Training


def module_of(model: Transformer, training: Training) -> TrainedModule:
    """Return the LightningModule of the model's method."""
    match model.method:
        case DenseMethod() | AverageMethod():
            return Dense(model, training)
        case BTXMethod():
            return BTX(model, training)
        case BAMMethod():
            return BAM(model, training)
        case SparseUpcyclingMethod():
            return SparseUpcycling(model, training)
        case LoryMethod():
            return Lory(model, training)
        case SegmentMoEMethod():
            return SegmentMoE(model, training)
        case TokenMergingMethod():
            return TokenMerging(model, training)
        case SMEARMethod():
            return SMEAR(model, training)
        case SoftMoEMethod():
            return SoftMoE(model, training)
        case BTMMethod() | LoryToSparseMethod():
            raise AssertionError(f"{model.method.method} is no transformer")
        case _:
            assert_never(model.method)
