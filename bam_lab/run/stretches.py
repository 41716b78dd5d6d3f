"""Phases that run stable and then decay share their stable run: one run, a decay for each length.

    stable to 400     ->     stable to 800     ->     stable to 1600
          + decay to 500           + decay to 1000           + decay to 2000

Each piece continues the one before, with its optimizer's state. The pieces are stages of their own,
known by their inputs as any stage is, so that a longer phase continues what shorter ones have
trained. Lengths are asked for from the shortest to the longest.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bam_lab.cost.match import PhaseBudget
from bam_lab.record.fingerprint import fingerprint
from bam_lab.run.stage import Stage

STABLE = "stable run"
"""The role of a piece, before the step that it ends at."""


@dataclass(frozen=True)
class Stretch:
    """Hold the steps of a phase that one stage does: `first` are done before, `last` after it.

    Attributes:
        decay_steps: how many of them decay; None under a cosine, which has no stretches.
    """

    first: int
    last: int
    decay_steps: int | None = None


@dataclass
class StableRuns:
    """Remember the stable runs of one graph.

    Attributes:
        pieces: what a run is (its stages' specs but for their steps) -> {end: pieces up to it}.
    """

    pieces: dict[str, dict[int, tuple[Stage, ...]]] = field(default_factory=dict)

    def up_to(
        self, end: int, made: Callable[[Stretch, dict[str, str]], Stage]
    ) -> tuple[Stage, ...]:
        """Return the pieces of a run to step `end`; the last one is new, unless it was there.

        Args:
            end: the step at which the decay begins.
            made: gives the stage of a stretch, from it and its further inputs.
        """
        whole = made(Stretch(0, end, 0), {})
        spec = {key: value for key, value in whole.spec.items() if key != "steps"}
        ends = self.pieces.setdefault(fingerprint({"spec": spec, "inputs": whole.inputs}), {})
        if end not in ends:
            begun = max((known for known in ends if known < end), default=0)
            before = ends.get(begun, ())
            new = made(Stretch(begun, end, 0), continuing(before[-1])) if before else whole
            ends[end] = (*before, replace(new, role=f"{STABLE} to step {end}"))
        return ends[end]


def continuing(stage: Stage) -> dict[str, str]:
    """Return the input of a stretch that begins where the stretch of `stage` ends."""
    return {"before": stage.fingerprint}


def portion(budget: PhaseBudget, steps: int) -> PhaseBudget:
    """Return what `steps` of a phase's steps spend."""
    share = {
        name: getattr(budget, name) // budget.steps * steps
        for name in ("tokens", "training_flops", "executed_flops", "bytes_communicated")
    }
    return replace(budget, steps=steps, **share)
