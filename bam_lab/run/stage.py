"""A stage (what it does, from what, its identity), and the graph of stages."""

from dataclasses import dataclass, field
from typing import Any

from bam_lab.record.fingerprint import fingerprint, normalise
from bam_lab.record.stages import REVISIONS, StageName
from bam_lab.record.store import stage_key


@dataclass(frozen=True)
class Stage:
    """Describe one unit of work; two uses of the same work have the same fingerprint.

    Attributes:
        label: what a person calls it: "mixture soft r0".
        spec: all that changes its numbers, as plain data.
        inputs: role -> fingerprint of the stage that gives it.
        threads: cores it takes.
        settings: what it needs to run and what does not change its numbers.
        seconds: a rough guess of its duration; orders the queue and weighs the progress bar.
        arm: the arm it serves; None when it is shared between arms.
        replicate: the replicate it belongs to; None when all share it.
        role: what it is for: the stage's name, or for `evaluate` what is evaluated (`seed_model`,
            `expert`, `step-0`, `arm`); `first part` and `conversion` where a mixture phase has two.
        alone: whether no other stage may run beside it, which would disturb what it measures.
    """

    name: StageName
    label: str
    spec: dict[str, Any]
    inputs: dict[str, str]
    fingerprint: str
    threads: int
    seconds: float
    role: str
    settings: dict[str, Any] = field(default_factory=dict)
    arm: str | None = None
    replicate: int | None = None
    domain: str | None = None
    alone: bool = False

    @property
    def key(self) -> str:
        """The name of its folder in the store."""
        return stage_key(self.name, self.fingerprint)

    def as_spec_json(self) -> dict[str, Any]:
        """Return what the stage's `spec.json` says."""
        return {
            "stage": self.name,
            "label": self.label,
            "spec": self.spec,
            "inputs": self.inputs,
            "revision": REVISIONS[self.name],
            "fingerprint": self.fingerprint,
        }


@dataclass(frozen=True)
class Graph:
    """Hold every stage once, inputs before what needs them.

    Attributes:
        stages: fingerprint -> stage.
        known: whether the corpus is built and the models of a measured match are timed, and so the
            fingerprints are final.
        again: work of `stages` that another arm needs too, named as that arm's: arms that differ
            in their mixture phase alone are upcycled once.
        settings: fingerprint -> the settings that need it; of an ablation that has settings.
    """

    stages: dict[str, Stage]
    known: bool
    corpus: Stage
    again: tuple[Stage, ...] = ()
    settings: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def setting(self, stage: Stage) -> str:
        """Return the first setting that needs a stage; "" for an ablation with one only."""
        return self.settings.get(stage.fingerprint, ("",))[0]

    def needs(self, stage: Stage) -> list[Stage]:
        """Return the stages that `stage` reads."""
        return [self.stages[fingerprint] for fingerprint in stage.inputs.values()]

    def arm(self, arm: str, replicate: int) -> Stage:
        """Return the stage that leaves the model of one arm in one replicate."""
        evaluation = next(
            stage
            for stage in self.stages.values()
            if (stage.role, stage.arm, stage.replicate) == ("arm", arm, replicate)
        )
        return self.stages[evaluation.inputs["model"]]


def identify(name: StageName, spec: dict[str, Any], inputs: dict[str, str]) -> str:
    """Return the fingerprint of a stage: its spec, what its inputs are, its revision."""
    return fingerprint({"stage": name, "spec": spec, "inputs": inputs, "revision": REVISIONS[name]})


def plain(value: object) -> Any:
    """Return specs as the plain data that stands in a stage's spec."""
    return normalise(value)
