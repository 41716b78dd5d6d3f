"""How big: a model, a corpus, and for each phase tokens, batch, learning rate, threads."""

from typing import Annotated, Literal

from pydantic import Field

from bam_lab.spec.base import (
    Beta,
    Name,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SchemaVersion,
    Share,
    Spec,
)


class PhaseSize(Spec):
    """Size one training phase.

    Attributes:
        tokens: training tokens (of the baseline arm, in the mixture phase; the match mode solves
            the others).
        batch_sequences: sequences of `max_seq_len` tokens in one optimizer step.
        peak_lr: learning rate after `warmup_steps` of linear warm-up; at the last step it is
            `final_lr_share` of that.
        threads: cores of one stage; it changes the bits, so it is fixed here.
        schedule: how it falls: along a cosine from the warm-up on, or after a stable run, over
            the last `decay_share` of the steps (warm-up, stable, decay: arXiv:2405.18392 §3).
    """

    tokens: PositiveInt
    batch_sequences: PositiveInt
    peak_lr: PositiveFloat
    warmup_steps: NonNegativeInt
    final_lr_share: Share
    threads: PositiveInt
    schedule: Literal["cosine", "stable_then_decay"] = "cosine"
    decay_share: Annotated[float, Field(gt=0, lt=1)] = 0.2

    def decay_steps(self, steps: int) -> int | None:
        """Return how many of a phase's `steps` decay after the stable run; None for a cosine."""
        if self.schedule == "cosine":
            return None
        return max(round(self.decay_share * steps), 1)


class Phases(Spec):
    """Size the three training phases."""

    seed_model: PhaseSize
    expert: PhaseSize
    mixture: PhaseSize


class OptimizerSpec(Spec):
    """Set AdamW; the same in every phase, fresh in each."""

    beta1: Beta
    beta2: Beta
    weight_decay: NonNegativeFloat
    grad_clip: PositiveFloat


class EvaluationSize(Spec):
    """Size the held-out evaluation.

    Attributes:
        tokens_per_domain: held-out tokens read at most from each domain and split.
        threads: cores of one evaluation.
    """

    tokens_per_domain: PositiveInt
    threads: PositiveInt


class ScaleSpec(Spec):
    """Hold every size of a run; `model` and `corpus` name files of their configs folders.

    Attributes:
        trial: whether the phases may be too short to conclude anything from; reports say so.
    """

    schema_version: SchemaVersion = Field(alias="schema")
    trial: bool = False
    model: Name
    corpus: Name
    phases: Phases
    optimizer: OptimizerSpec
    evaluation: EvaluationSize
    checkpoint_every: PositiveInt
