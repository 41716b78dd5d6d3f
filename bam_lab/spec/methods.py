"""What each method fixes: router, losses, attention experts; a union over `method`.

The defaults are the papers' (section named beside each); a value that a paper leaves open is in
the assumption register (`report/assumptions.py`).
"""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, assert_never

from pydantic import AfterValidator, Field

from bam_lab.spec.base import NonNegativeFloat, PositiveFloat, PositiveInt, Spec
from bam_lab.spec.model import ModelSpec


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
    """Hold what every mixture of dense experts has.

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


def _layer_choice(value: str) -> str:
    if not re.fullmatch(r"all|every_other|last_[1-9][0-9]*", value):
        raise ValueError("all, every_other or last_<n>, such as last_6")
    return value


LayerChoice = Annotated[str, AfterValidator(_layer_choice)]
NumExperts = Annotated[int, Field(ge=2)]


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


class SparseUpcyclingMethod(Spec):
    """Copy the seed model's FFN into every expert of some layers (arXiv:2212.05055 §4).

    Attributes:
        layers: which layers become mixtures, the others stay dense: `all`; `every_other`, from the
            second on (the paper's for language); `last_<n>` (its choice for vision, App. B.4).
        copy_noise_std: standard deviation of normal noise on each copy; 0 makes them identical.
        router_init_std: standard deviation of the routers' normal initialisation.
    """

    method: Literal["sparse_upcycling"]
    num_experts: NumExperts
    layers: LayerChoice
    ffn_router: RouterSpec
    copy_noise_std: NonNegativeFloat = 0.0
    balance_loss: BalanceLoss | None = BalanceLoss(form="tokens", weight=0.01)
    z_loss: NonNegativeFloat = 0.0
    router_init_std: PositiveFloat = 0.02


class LoryMethod(Spec):
    """Merge all FFN experts into one FFN a segment, by the segment before (arXiv:2405.03133 §3).

    Attributes:
        segment_len: tokens that share one merged FFN; divides `max_seq_len`, at most half of it.
        first_segment: how the first segment weighs the experts: `own_mean`, by its own mean, with
            no gradient to that decision (the paper's; its tokens see later ones of the segment), or
            `uniform`, all alike (causal).
        num_experts: that many copies of the seed model; absent where dense experts are mixed.
        experts: names of the dense models that become experts, as for other mixtures.
        router_init_std: standard deviation of the routers' normal initialisation.
    """

    method: Literal["lory"]
    segment_len: PositiveInt
    first_segment: Literal["own_mean", "uniform"]
    num_experts: NumExperts | None = None
    experts: tuple[str, ...] = ()
    router_init_std: PositiveFloat = 0.02


MethodSpec = Annotated[
    DenseMethod | BTXMethod | BAMMethod | SparseUpcyclingMethod | LoryMethod,
    Field(discriminator="method"),
]


def is_mixture(method: MethodSpec) -> bool:
    """Return whether the method builds a mixture, and so has experts and routers."""
    return not isinstance(method, DenseMethod)


def experts_of(method: MethodSpec, recipe_experts: Sequence[str]) -> tuple[str, ...]:
    """Return the dense models behind an arm's experts, in router-column order.

    Args:
        method: the arm's method; a dense one has a single model, the seed model.
        recipe_experts: the recipe's own list, taken when the arm names none.
    """
    match method:
        case DenseMethod():
            return ("seed_model",)
        case SparseUpcyclingMethod(num_experts=count) | LoryMethod(num_experts=int(count)):
            return ("seed_model",) * count
        case BTXMethod() | BAMMethod() | LoryMethod():
            return method.experts or tuple(recipe_experts)
        case _:
            assert_never(method)


def copies_seed(method: MethodSpec) -> bool:
    """Return whether every expert is a copy of the seed model, the one model that is read."""
    if isinstance(method, LoryMethod):
        return method.num_experts is not None
    return isinstance(method, SparseUpcyclingMethod)


def num_sources(method: MethodSpec, num_experts: int) -> int:
    """Return how many dense models are read to make `num_experts` experts."""
    return 1 if copies_seed(method) else num_experts


def num_experts_of(method: MethodSpec, sources: int) -> int:
    """Return how many experts `method` makes of `sources` dense models; 1 for a dense method."""
    match method:
        case DenseMethod():
            return 1
        case SparseUpcyclingMethod(num_experts=count) | LoryMethod(num_experts=int(count)):
            return count
        case BTXMethod() | BAMMethod() | LoryMethod():
            return sources
        case _:
            assert_never(method)


def routed_layers(method: MethodSpec, num_layers: int) -> tuple[int, ...]:
    """Return the layers whose FFN is a mixture; the others have a dense one."""
    match method:
        case DenseMethod():
            return ()
        case SparseUpcyclingMethod(layers="every_other"):
            return tuple(range(1, num_layers, 2))
        case SparseUpcyclingMethod(layers=layers) if layers != "all":
            return tuple(range(num_layers - int(layers.removeprefix("last_")), num_layers))
        case _:
            return tuple(range(num_layers))


def misfits(method: MethodSpec, model: ModelSpec) -> Iterator[tuple[str, str]]:
    """Yield each setting that the model's shape rules out, and what must hold."""
    if isinstance(method, SparseUpcyclingMethod) and method.layers != "all":
        routed = routed_layers(method, model.num_layers)
        if not routed or min(routed) <= 0:
            yield (
                "layers",
                f"must leave a dense and a routed layer of {model.num_layers}, got "
                f"{method.layers}. Use all or fewer.",
            )
    if isinstance(method, LoryMethod) and (
        model.max_seq_len % method.segment_len or model.max_seq_len < 2 * method.segment_len
    ):
        yield (
            "segment_len",
            f"must divide max_seq_len {model.max_seq_len} into two segments or more, got "
            f"{method.segment_len}.",
        )
