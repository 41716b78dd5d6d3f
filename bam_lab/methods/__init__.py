"""The methods as LightningModules: `Dense`, `BTX`, `BAM`, from a seed model or dense experts."""

from bam_lab.methods.bam import BAM
from bam_lab.methods.btx import BTX
from bam_lab.methods.build import module_of
from bam_lab.methods.dense import Dense

__all__ = ["BAM", "BTX", "Dense", "module_of"]
