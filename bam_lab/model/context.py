"""What a forward pass carries past the residual stream: a training pass's noise, a cache.

Shapes: B batch, T tokens, L tokens that a cache has room for, K key-value heads, C head_dim.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bam_lab.model.layers import Rope
from bam_lab.spec.model import END_OF_TEXT_ID

RoutingRule = Literal["prompt", "segment"]
"""How methods that route segments decide while generating: once from the prompt, or again."""


class Draw(NamedTuple):
    """Mark a training pass; a pass without one follows the method's inference rule.

    Attributes:
        step: the optimizer step, which sets temperatures.
        generator: the step's noise, on the model's device.
    """

    step: int
    generator: torch.Generator


@dataclass
class LayerCache:
    """Hold what one layer keeps of earlier tokens; the layer fills it.

    Attributes:
        room: L.
        keys: rotated keys, once a prompt was read; places that no token has reached hold anything.
        values: their values.
        ffn: what an FFN that routes segments keeps (`lory.py`); None for all others.
    """

    room: int
    keys: Float[Tensor, "B K L C"] | None = None
    values: Float[Tensor, "B K L C"] | None = None
    ffn: Any = None


@dataclass
class Cache:
    """Hold what a model keeps of earlier tokens; the caller owns it.

    Attributes:
        layers: one cache a layer.
        lengths: places of each row that count; before the prompts were read, those of its prompt.
        rule: how methods that route segments decide.
        filled: whether the prompts were read.
        starts: where each row's current document begins; None where attention reaches over it.
    """

    layers: list[LayerCache]
    lengths: Int[Tensor, " B"]
    rule: RoutingRule
    filled: bool = False
    starts: Int[Tensor, " B"] | None = None


class Cached(NamedTuple):
    """Mark a pass of generation, and carry one layer's cache.

    Rows stand with their first real token at place 0, whatever the padding of the prompts was, so
    positions and segments count from it; causality makes the filling behind a shorter prompt
    harmless, and later tokens overwrite what it left in the cache.

    Attributes:
        layer: the layer's cache: to be filled by a pass over the prompts, else read and extended.
        prompt: whether this pass reads the prompts; else one further token of each row.
        lengths: places of each row that count, that of a method's own first token included: those
            of its prompt, of the T that a prompt pass reads; or those before the one token that
            this pass adds, which is its place.
        rule: how methods that route segments decide.
    """

    layer: LayerCache
    prompt: bool
    lengths: Int[Tensor, " B"]
    rule: RoutingRule


class Prompt(NamedTuple):
    """Mark a pass over prompts and what follows them, decided as in generation; its oracle.

    Attributes:
        length: tokens of the prompt, the same in every row.
        rule: how methods that route segments decide for the tokens behind it.
    """

    length: int
    rule: RoutingRule


class Context(NamedTuple):
    """Hold what a layer may need beside its input.

    Attributes:
        rope: cosines and sines of the tokens' positions.
        tokens: the tokens themselves, for routers that hash them.
        draw: None under the inference rule.
        cached: None but in generation.
        prompt: None but where generation is followed without a cache.
        starts: the first place that each token may attend to; None where that is the row's first.
    """

    rope: Rope
    tokens: Int[Tensor, "B T"]
    draw: Draw | None = None
    cached: Cached | None = None
    prompt: Prompt | None = None
    starts: Int[Tensor, "B T"] | None = None


def document_starts(tokens: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Return the place of the last end-of-text at or before each token; 0 where there is none."""
    places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    return places.where(tokens == END_OF_TEXT_ID, 0).cummax(1).values
