"""What routers do, as facts to log beside the losses; none of them is trained on.

Shapes: B batch, T tokens, E experts.
"""

import torch
from torch import Tensor

from bam_lab.model.router import Routing
from bam_lab.model.transformer import Output


@torch.no_grad()
def routing_facts(output: Output) -> dict[str, Tensor]:
    """Return what each kind of router did, its layers averaged; only for the routers there are.

    `entropy_<kind>`, in nats: of a token's softmax over experts, mean over tokens; 0 for a hash.
    `load_max_<kind>`, `load_min_<kind>`: the largest and the smallest share of one expert, of the
    choices that run, or of the gates where every token goes to every expert. `used_<kind>`: the
    share of experts whose gate is above 2/E for some token or segment (arXiv:2405.03133 appendix
    G), where E is above 2. `dropped_<kind>`: the share of choices that a capacity
    limit dropped, or of tokens that no expert chose; only where choices are not all kept.
    """
    facts: dict[str, Tensor] = {}
    for kind in ("ffn", "attention"):
        routings = [getattr(layer, kind) for layer in output.routings]
        found = [_facts(routing) for routing in routings if routing is not None]
        for name in dict.fromkeys(name for layer in found for name in layer):
            values = torch.stack([layer[name] for layer in found if name in layer])
            facts[f"{name}_{kind}"] = values.mean()
    return facts


def _facts(routing: Routing) -> dict[str, Tensor]:
    experts = routing.logits.shape[-1]
    log = routing.logits.log_softmax(-1)
    loads = _loads(routing)
    facts = {
        "entropy": -(log.exp() * log).sum(-1).mean(),
        "load_max": loads.max(),
        "load_min": loads.min(),
    }
    if experts > 2:
        facts["used"] = (routing.gates.flatten(0, -2).amax(0) > 2 / experts).float().mean()
    if routing.kept is not None:
        kept = routing.kept.float()
        everyone = kept.shape[-1] == experts
        facts["dropped"] = 1 - (kept.amax(-1) if everyone else kept).mean()
    return facts


def _loads(routing: Routing) -> Tensor:
    """Return each expert's share."""
    if routing.kept is None and routing.chosen.shape[-1] == routing.logits.shape[-1]:
        loads = routing.gates.flatten(0, -2).sum(0)
    else:
        chosen = routing.chosen if routing.kept is None else routing.chosen[routing.kept]
        loads = torch.bincount(chosen.flatten(), minlength=routing.logits.shape[-1]).float()
    return loads / loads.sum()
