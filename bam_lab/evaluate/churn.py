"""Router churn: how far the routing of one text moved between two points of a training run.

Decisions are counted as in `routing_counts.py`, by the rule of inference. Of a router that chooses
experts, churn is the share of its decisions whose first choice, the expert of the largest gate, is
another one or no longer there. Where every expert serves (soft routing, merged parameters) it is
the total variation distance of the gates a and b, 1/2 sum_e |a_e - b_e|, mean over decisions: the
same number where gates are all or nothing. Both are between 0 and 1.

Shapes: N windows, T tokens, C decisions that count, E experts.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bam_lab.data.tokens.heldout import UNSCORED, windows
from bam_lab.evaluate.routing_counts import (
    decisions_that_count,
    every_expert_serves,
    routings_of,
)
from bam_lab.model.router import Routing
from bam_lab.model.transformer import Transformer

Decisions = dict[str, Tensor]
"""Router, as `ffn.0`, -> its first choices [C], -1 where no expert serves, or its gates [C, E]."""
_ROWS = 16  # windows a forward pass


def watch_of(
    model: Transformer,
    tokens_dir: Path,
    domains: Sequence[str],
    split: str,
    seq_len: int,
    max_tokens: int,
    precision: Literal["bf16-mixed", "float32"],
) -> Callable[[Decisions], tuple[dict[str, float], Decisions]]:
    """Return a function from earlier decisions to the churn since, and the decisions of now.

    Without earlier decisions there is no churn. `max_tokens` limits each domain to its first
    windows, at least one; they are read once.

    Raises:
        InputError: a domain has no document in this split.
    """
    held = [windows(tokens_dir, domain, split, seq_len, max_tokens) for domain in domains]
    most = max(max_tokens // seq_len, 1)
    tokens = torch.from_numpy(np.concatenate([one.tokens[:most, :-1] for one in held]))
    document = torch.from_numpy(np.concatenate([one.document[:most] for one in held]))

    def watch(before: Decisions) -> tuple[dict[str, float], Decisions]:
        after = decisions(model, tokens, document != UNSCORED, precision)
        return churn(before, after) if before else {}, after

    return watch


@torch.no_grad()
def decisions(
    model: Transformer,
    tokens: Int[Tensor, "N T"],
    scored: Bool[Tensor, "N T"],
    precision: Literal["bf16-mixed", "float32"],
) -> Decisions:
    """Return what every router decides about the `scored` tokens; a dense model has none."""
    device = next(model.parameters()).device
    parts = defaultdict(list)
    for rows, counted in zip(*(torch.split(one, _ROWS) for one in (tokens, scored)), strict=True):
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16-mixed"):
            output = model(rows.to(device))
        for place, routing in routings_of(output):
            own = decisions_that_count(model.method, routing, counted.to(device))
            parts[f"{place.router}.{place.layer}"].append(_decided(routing, own).cpu())
    return {name: torch.cat(found) for name, found in parts.items()}


def _decided(
    routing: Routing, counted: Bool[Tensor, "B P"]
) -> Int[Tensor, " C"] | Float[Tensor, "C E"]:
    gates = routing.gates[counted]
    if every_expert_serves(routing):
        return gates
    most, first = gates.max(-1)
    return first.where(most > 0, -1)


def churn(before: Decisions, after: Decisions) -> dict[str, float]:
    """Return kind of router -> mean churn over its layers, of the same decisions at two times."""
    kinds = defaultdict(list)
    for name, now in after.items():
        kinds[name.partition(".")[0]].append(_moved(before[name], now))
    return {kind: sum(moved) / len(moved) for kind, moved in kinds.items()}


def _moved(before: Tensor, after: Tensor) -> float:
    if after.is_floating_point():
        return float((after.double() - before.double()).abs().sum(-1).mean() / 2)
    return float((after != before).double().mean())
