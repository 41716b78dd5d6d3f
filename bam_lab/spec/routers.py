"""How a router decides, and the losses that act on it."""

from typing import Annotated, Literal

from pydantic import Field

from bam_lab.spec.base import PositiveFloat, PositiveInt, Spec


class SoftRouter(Spec):
    """Send every token to every expert, weighted by a softmax over all (arXiv:2408.08274 §4)."""

    score: Literal["softmax"]
    select: Literal["all"]


class TopKRouter(Spec):
    """Send every token to its `top_k` experts.

    Attributes:
        renormalize: False for softmax, then top-k (BAM, arXiv:2408.08274 §3); True for top-k, then
            softmax (BTX, arXiv:2403.07816 §3). With `top_k` 1, True is an error: the gate would be
            the constant 1 and give the router no gradient.
    """

    score: Literal["softmax"]
    select: Literal["top_k"]
    top_k: PositiveInt
    renormalize: bool


RouterSpec = Annotated[SoftRouter | TopKRouter, Field(discriminator="select")]


class BalanceLoss(Spec):
    """Push the load of a router's experts together.

    Attributes:
        form: `tokens` is E * sum_i f_i P_i with f_i the share of tokens sent to expert i
            (arXiv:2408.08274 §3); `gates` takes the batch mean of the selected gate values instead
            of f_i (arXiv:2403.07816 §3.3).
        weight: factor on the sum over layers.
    """

    form: Literal["tokens", "gates"]
    weight: PositiveFloat
