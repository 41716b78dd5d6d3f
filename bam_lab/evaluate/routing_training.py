"""What the training rule makes of a batch, and how far the rule of inference chooses the same.

Of routers that choose otherwise in training: experts that choose their tokens (at inference tokens
choose), sampling, capacity limits. Both rules take the logits of one forward pass under the rule of
inference, so that they alone differ and not what the layers below made of them. The batch holds all
domains, as in training: where experts choose, its tokens compete.

Shapes: B batch, T tokens.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from bam_lab.evaluate.routing_counts import (
    Place,
    count,
    decisions_that_count,
    routings_of,
    serving,
)
from bam_lab.evaluate.routing_measures import ALL, of_domain, row
from bam_lab.model.context import Draw
from bam_lab.model.ffn import FFNExperts
from bam_lab.model.router import Routing, select
from bam_lab.model.transformer import Output, Transformer
from bam_lab.spec.routers import ExpertChoiceRouter, RouterSpec, SampleRouter, TopKRouter

_MEASURES = ("none", "several", "experts", "dropped")
_LATE = 1_000_000  # a step at which sampling has its lowest temperature


def differs(router: RouterSpec) -> bool:
    """Return whether a router chooses otherwise in training than at inference."""
    match router:
        case ExpertChoiceRouter() | SampleRouter() | TopKRouter(capacity_factor=float()):
            return True
        case _:
            return False


def routers_that_differ(model: Transformer) -> dict[Place, FFNExperts]:
    """Return the routed FFNs of which that is so; no attention router has such a rule."""
    modules = {Place(i, "ffn"): layer.ffn for i, layer in enumerate(model.layers)}
    return {
        place: ffn
        for place, ffn in modules.items()
        if isinstance(ffn, FFNExperts) and differs(ffn.router_spec)
    }


@torch.no_grad()
def training_rows(
    model: Transformer, output: Output, scored: Bool[Tensor, "B T"], owners: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of one batch (`routing.py`): `agreement`, and `training_...`.

    Args:
        model: whose routers they are.
        output: of the batch, under the rule of inference.
        scored: the tokens that count.
        owners: the domain of each row of the batch.
    """
    generator = torch.Generator(scored.device).manual_seed(0)
    routings = dict(routings_of(output))
    domains = list(dict.fromkeys(owners))
    for place, ffn in routers_that_differ(model).items():
        routing = routings[place]
        trained = select(routing.logits, ffn.router_spec, Draw(_LATE, generator), ffn.bias)
        counted = decisions_that_count(model.method, routing, scored)
        means: dict[str, list[float]] = defaultdict(list)
        for domain in domains:
            rows = torch.tensor([owner == domain for owner in owners], device=scored.device)
            own = counted & rows[:, None]
            for name, value in _compared(trained, routing, own):
                means[name].append(value)
                yield row(place, ALL, domain, name, value, int(own.sum()))
        for name, values in means.items():
            mean = sum(values) / len(values)
            yield row(place, ALL, ALL, name, mean, int(counted.sum()))


def _compared(
    trained: Routing, evaluated: Routing, counted: Bool[Tensor, "B P"]
) -> Iterator[tuple[str, float]]:
    first, second = (serving(rule)[counted] for rule in (trained, evaluated))
    either = int((first | second).sum())
    yield "agreement", int((first & second).sum()) / either if either else 1.0
    for name, value in of_domain(count(trained, counted)):
        if name in _MEASURES:
            yield f"training_{name}", value
