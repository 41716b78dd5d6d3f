"""What each method fixes: router, losses, attention experts; a union over `method`.

The defaults are the papers' (section named beside each); a value that a paper leaves open is in
the assumption register (`report/assumptions.py`).
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from bam_lab.spec.base import NonNegativeFloat, PositiveFloat, PositiveInt, Spec


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


class DenseMethod(Spec):
    """Go on training the seed model, unchanged, on the mixture phase's data mix."""

    method: Literal["dense"]


class _MixtureMethod(Spec):
    """Hold what every mixture has.

    Attributes:
        experts: names of the dense models that become experts, in router-column order; `seed_model`
            is the seed model. A name may stand more than once: each time it is one more copy. Empty
            means the recipe's own list.
        router_init_std: standard deviation of the routers' normal initialisation.
    """

    ffn_router: RouterSpec
    experts: tuple[str, ...] = ()
    z_loss: NonNegativeFloat = 0.0
    router_init_std: PositiveFloat = 0.02


class BTXMethod(_MixtureMethod):
    """Mix FFN experts; merge everything else by the mean (arXiv:2403.07816 §3)."""

    method: Literal["btx"]
    balance_loss: BalanceLoss | None = BalanceLoss(form="gates", weight=0.01)


class BAMMethod(_MixtureMethod):
    """Mix FFN and attention experts; merge everything else by the mean (arXiv:2408.08274 §4).

    Attributes:
        kv: `per_expert` (KV experts: own W_k, W_v) or `shared` (KV sharing: one averaged pair).
        attention_balance_loss: the attention router's own balance loss; None in the paper.
    """

    method: Literal["bam"]
    kv: Literal["per_expert", "shared"]
    attention_router: RouterSpec
    balance_loss: BalanceLoss | None = BalanceLoss(form="tokens", weight=0.01)
    attention_balance_loss: BalanceLoss | None = None
    z_loss: NonNegativeFloat = 0.001


MethodSpec = Annotated[DenseMethod | BTXMethod | BAMMethod, Field(discriminator="method")]


def is_mixture(method: MethodSpec) -> bool:
    """Return whether the method builds a mixture, and so has experts and routers."""
    return not isinstance(method, DenseMethod)


def experts_of(method: MethodSpec, recipe_experts: Sequence[str]) -> tuple[str, ...]:
    """Return the dense models behind an arm's experts, in router-column order.

    Args:
        method: the arm's method; a dense one has a single model, the seed model.
        recipe_experts: the recipe's own list, taken when the arm names none.
    """
    if isinstance(method, DenseMethod):
        return ("seed_model",)
    return method.experts or tuple(recipe_experts)
