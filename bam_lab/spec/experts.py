"""Which dense models a method reads, how many experts it makes, and in which layers."""

from collections.abc import Iterator, Sequence
from typing import assert_never

from bam_lab.spec.methods import (
    BAMMethod,
    BTXMethod,
    DenseMethod,
    LoryMethod,
    MethodSpec,
    SparseUpcyclingMethod,
)
from bam_lab.spec.model import ModelSpec


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


def sources_of(method: MethodSpec, recipe_experts: Sequence[str]) -> tuple[str, ...]:
    """Return the dense models that an arm reads, in order; none for one that starts anew."""
    names = experts_of(method, recipe_experts)
    return names[: num_sources(method, len(names))]


def copies_seed(method: MethodSpec) -> bool:
    """Return whether every expert is a copy of the seed model, the one model that is read."""
    if isinstance(method, LoryMethod):
        return method.num_experts is not None
    return isinstance(method, SparseUpcyclingMethod)


def num_sources(method: MethodSpec, named: int) -> int:
    """Return how many of `named` dense models are read."""
    return 1 if copies_seed(method) else named


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
    if model.activation == "gelu" and is_mixture(method):
        yield (
            "method",
            f"must be dense where the model's activation is gelu, got {method.method}: experts "
            "are SwiGLUs. Take a model with activation: swiglu.",
        )
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
