"""What the match gives to an arm."""

from dataclasses import dataclass

from bam_lab.cost.match.phases import PhaseBudget

TOLERANCE = 0.005


@dataclass(frozen=True)
class ArmBudget(PhaseBudget):
    """Hold an arm's mixture phase, all its parts together, and how it compares.

    `params` and `flops` are those of the model that the arm leaves.

    Attributes:
        parts: what each part of the mixture phase spends; none for an arm that is not trained.
        batch_sequences: sequences of one optimizer step.
        lineage_flops: model training FLOPs of seed model, used branches and mixture phase.
        flops_ratio: mixture-phase model training FLOPs over the baseline's.
        match_ratio: the matched quantity over the baseline's.
        matched: whether that is within `TOLERANCE`, or within one optimizer step of this arm.
        known: False where steps or sizes hang on a calibration that is still to be made; until then
            FLOPs stand in for seconds.
    """

    parts: tuple[PhaseBudget, ...]
    batch_sequences: int
    lineage_flops: int
    flops_ratio: float
    match_ratio: float
    matched: bool
    known: bool = True
