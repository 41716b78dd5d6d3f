"""What a forward pass carries past the residual stream, and whether it is a training pass.

Shapes: B batch, T tokens.
"""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from bam_lab.model.layers import Rope


class Draw(NamedTuple):
    """Mark a training pass; a pass without one follows the method's inference rule.

    Attributes:
        step: the optimizer step, which sets temperatures.
        generator: the step's noise, on the model's device.
    """

    step: int
    generator: torch.Generator


class Context(NamedTuple):
    """Hold what a layer may need beside its input.

    Attributes:
        rope: cosines and sines of the tokens' positions.
        tokens: the tokens themselves, for routers that hash them.
        draw: None under the inference rule.
    """

    rope: Rope
    tokens: Int[Tensor, "B T"]
    draw: Draw | None = None
