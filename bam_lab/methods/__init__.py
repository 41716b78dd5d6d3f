"""The methods as LightningModules, one file a paper, from a seed model or dense experts."""

from bam_lab.methods.average import Average
from bam_lab.methods.bam import BAM
from bam_lab.methods.btm import BTM
from bam_lab.methods.btx import BTX
from bam_lab.methods.dense import Dense
from bam_lab.methods.lory import Lory
from bam_lab.methods.lory_rivals import SegmentMoE, TokenMerging
from bam_lab.methods.smear import SMEAR
from bam_lab.methods.soft_moe import SoftMoE
from bam_lab.methods.sparse_upcycling import SparseUpcycling
from bam_lab.methods.wrap import module_of

__all__ = [
    "BAM",
    "BTM",
    "BTX",
    "SMEAR",
    "Average",
    "Dense",
    "Lory",
    "SegmentMoE",
    "SoftMoE",
    "SparseUpcycling",
    "TokenMerging",
    "module_of",
]
