"""Which models a `calibrate` stage times, and what each is called.

`device-time` times a training step of every part of every arm's mixture phase, and of a dense model
where the phases before it count. `decode-throughput` times the decoding of a token by every arm as
written and by candidates of those that are solved.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from bam_lab.cost.match.lineage import num_experts
from bam_lab.cost.sizes import sized
from bam_lab.spec.experts import parts_of
from bam_lab.spec.methods import DenseMethod, MethodSpec
from bam_lab.spec.resolved import ResolvedAblation


@dataclass(frozen=True)
class Model:
    """Hold a method and over how many experts."""

    method: MethodSpec
    num_experts: int

    @property
    def key(self) -> str:
        """What its seconds are found by; the names of experts are labels and make no other."""
        text = self.method.model_dump_json(exclude={"experts", "branch"}, by_alias=True)
        return f"{self.num_experts} experts: {text}"


DENSE_MODEL = Model(DenseMethod(method="dense"), 1)
"""The model of seed models and branches."""


def model_of(resolved: ResolvedAblation, method: MethodSpec) -> Model:
    """Return the model of an arm's method."""
    return Model(method, num_experts(resolved, method))


def trained_models(resolved: ResolvedAblation) -> tuple[Model, ...]:
    """Return the model of each part of each arm's mixture phase, and of those before it, once."""
    mixtures = [
        Model(part, num_experts(resolved, method))
        for method in sized(resolved).arms.values()
        for part in parts_of(method)
    ]
    before = [DENSE_MODEL] if resolved.ablation.match.phase == "all" else []
    return _once((*mixtures, *before))


def _once(models: Iterable[Model]) -> tuple[Model, ...]:
    return tuple({model.key: model for model in models}.values())
