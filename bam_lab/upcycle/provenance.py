"""How far dense experts have moved from the model they branched from, and whether they did.

Two numbers, over all matrices and by group: the distance ||expert - seed|| / ||seed||, and the
cosine between the two as vectors. Models that share no seed have a cosine near 0, whatever they
were trained on; their mean is no model, so mixing them is an error unless it is asked for. Norms
are left out: near 1 in every model, they are alike in all.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bam_lab.errors import CheckpointError
from bam_lab.spec.recipe import SEED_MODEL

State = Mapping[str, Tensor]
GROUPS = ("embeddings", "attention", "ffn")
UNRELATED = 0.1
"""Cosine over all matrices below which two models are taken to share no seed. Measured at nano: two
seed models trained apart on the same text 0.015 at most, branches and their seed 0.88 at least."""


def provenance(seed_model: State, expert: State) -> dict[str, dict[str, float]]:
    """Return group -> distance and cosine of an expert to the model it branched from.

    Groups are `all` matrices, `embeddings` (LM head included), `attention`, `ffn`.
    """
    sums = {group: torch.zeros(4, dtype=torch.float64) for group in GROUPS}
    for name, tensor in seed_model.items():
        if (group := _group(name)) is not None:
            sums[group] += _sums(tensor.detach(), expert[name].detach())
    return {"all": _measure(sum(sums.values()))} | {g: _measure(s) for g, s in sums.items()}


def check_related(
    names: Sequence[str], states: Sequence[State], seed_model: int = 0
) -> list[dict[str, dict[str, float]]]:
    """Return each model's provenance, where all share a seed.

    Args:
        names: of the models, for messages.
        states: the models.
        seed_model: which of them the others are compared with: the seed model, or else the first,
            since two branches of one model are near each other too.

    Raises:
        CheckpointError: two models share no seed.
    """
    found = [provenance(states[seed_model], state) for state in states]
    for name, measured in zip(names, found, strict=True):
        whole = measured["all"]
        if not whole["cosine"] >= UNRELATED:
            raise CheckpointError(
                f"{name} must share its seed model with {names[seed_model]}, with which it is "
                f"mixed, got weights at a cosine of {whole['cosine']:.3f} and a distance of "
                f"{whole['distance']:.2f} (unrelated models have a cosine below {UNRELATED}). Mix "
                "branches of one model, or say allow_unrelated=True."
            )
    return found


def moved(names: Sequence[str], states: Sequence[State]) -> dict[str, Any]:
    """Return how far the dense models of a mixture have moved, for its receipt.

    They are compared with the seed model where it is among them, else with the first.

    Raises:
        CheckpointError: two of them share no seed.
    """
    seed = names.index(SEED_MODEL) if SEED_MODEL in names else 0
    found = check_related(names, states, seed)
    return {"compared_with": names[seed], "models": dict(zip(names, found, strict=True))}


def _group(name: str) -> str | None:
    """Return the group of a dense tensor; None for norms."""
    if name.endswith("norm"):
        return None
    if ".attention." in name:
        return "attention"
    return "ffn" if ".ffn." in name else "embeddings"


def _sums(seed: Tensor, expert: Tensor) -> Tensor:
    """Return |seed|^2, |expert|^2, seed . expert and |expert - seed|^2."""
    one, two = seed.double().flatten(), expert.double().flatten()
    difference = two - one
    return torch.stack([one @ one, two @ two, one @ two, difference @ difference])


def _measure(sums: Any) -> dict[str, float]:
    seed, expert, both, difference = (float(value) for value in sums)
    return {
        "distance": math.sqrt(difference / seed) if seed else math.inf,
        "cosine": both / math.sqrt(seed * expert) if seed * expert else 0.0,
    }
