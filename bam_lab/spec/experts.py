"""Which dense models a method reads, how many experts it makes, and in which layers."""

from collections.abc import Sequence
from itertools import groupby
from typing import assert_never

from bam_lab.spec.methods import (
    AverageMethod,
    BAMMethod,
    BTMMethod,
    BTXMethod,
    DenseMethod,
    LoryMethod,
    LoryToSparseMethod,
    MethodSpec,
    SegmentMoEMethod,
    SparseUpcyclingMethod,
    Unrouted,
)
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.routers import HashRouter, ReLURouter
from bam_lab.spec.segments import CopiesOrExperts


def is_mixture(method: MethodSpec) -> bool:
    """Return whether the method builds a mixture, and so has experts and routers."""
    return not isinstance(method, Unrouted)


def is_trained(method: MethodSpec) -> bool:
    """Return whether the arm has a mixture phase; one without is as it was put together."""
    return not isinstance(method, AverageMethod | BTMMethod)


def parts_of(method: MethodSpec) -> tuple[MethodSpec, ...]:
    """Return the method of each part of the mixture phase; none for an arm without one."""
    match method:
        case LoryToSparseMethod():
            return method.lory, method.sparse
        case _:
            return (method,) if is_trained(method) else ()


def built(method: MethodSpec) -> MethodSpec:
    """Return the method of the model that upcycling leaves."""
    match method:
        case LoryToSparseMethod():
            return method.lory
        case _:
            return method


def shape_of(method: MethodSpec, model: ModelSpec) -> ModelSpec:
    """Return the shape of the arm's own model, where the seed model's is `model`."""
    if isinstance(method, DenseMethod):
        assert method.size_of is None, "a size by another arm is settled first (`cost/sizes.py`)"
        if method.ffn_dim is not None:
            return model.model_copy(update={"ffn_dim": method.ffn_dim})
    return model


def experts_of(method: MethodSpec, recipe_experts: Sequence[str]) -> tuple[str, ...]:
    """Return what is behind each of an arm's experts, in router-column order.

    A dense model's name; `code[1/2]` for the first half of its FFN, `blend[1/4]` for the first
    quarter of every model's; `scratch` where nothing is.

    Args:
        method: the arm's method; a dense one has a single model, the seed model.
        recipe_experts: the recipe's own list, taken when the arm names none.
    """
    if starts_anew(method):
        return ("scratch",) * num_experts_of(method, 0)
    match method:
        case DenseMethod():
            return ("seed_model",)
        case SparseUpcyclingMethod():
            copied = method.copied_experts or method.num_experts
            copies = _parts("seed_model", method.granularity) * copied
            return copies + ("scratch",) * (num_experts_of(method, 1) - len(copies))
        case CopiesOrExperts(num_experts=int(count)):
            return ("seed_model",) * count
        case BTXMethod(expert_layout="split", chunks=int(chunks)):
            names = method.experts or tuple(recipe_experts)
            return tuple(part for name in names for part in _parts(name, chunks))
        case BTXMethod(expert_layout="blended"):
            return _parts("blend", len(method.experts or recipe_experts))
        case LoryToSparseMethod():
            return experts_of(method.lory, recipe_experts)
        case BTXMethod() | BAMMethod() | CopiesOrExperts() | AverageMethod() | BTMMethod():
            return method.experts or tuple(recipe_experts)
        case _:
            assert_never(method)


def _parts(name: str, parts: int) -> tuple[str, ...]:
    return (
        tuple(f"{name}[{part}/{parts}]" for part in range(1, parts + 1)) if parts > 1 else (name,)
    )


def listed(experts: Sequence[str]) -> str:
    """Return names of experts in order, repetitions counted: `seed_model x 4`."""
    runs = [(name, len(list(same))) for name, same in groupby(experts)]
    return ", ".join(f"{name} x {count}" if count > 1 else name for name, count in runs)


def sources_of(method: MethodSpec, recipe_experts: Sequence[str]) -> tuple[str, ...]:
    """Return the dense models that an arm reads, in order; none for one that starts anew."""
    if isinstance(method, BTXMethod):
        return method.experts or tuple(recipe_experts)
    if copies_seed(method):
        return ("seed_model",)
    names = experts_of(method, recipe_experts)
    return names[: num_sources(method, len(names))]


def starts_anew(method: MethodSpec) -> bool:
    """Return whether the method reads no dense model and draws every weight."""
    return getattr(method, "start", "seed_model") == "scratch"


def copies_seed(method: MethodSpec) -> bool:
    """Return whether every expert is a copy of the seed model, the one model that is read."""
    if starts_anew(method):
        return False
    if isinstance(method, CopiesOrExperts | LoryToSparseMethod):
        return method.num_experts is not None
    return isinstance(method, SparseUpcyclingMethod)


def num_sources(method: MethodSpec, num_experts: int) -> int:
    """Return how many dense models are read for `num_experts` experts."""
    if starts_anew(method):
        return 0
    if isinstance(method, BTXMethod) and method.chunks is not None:
        return num_experts // method.chunks
    return 1 if copies_seed(method) else num_experts


def num_experts_of(method: MethodSpec, sources: int) -> int:
    """Return how many experts `method` makes of `sources` dense models; 1 for a dense method."""
    match method:
        case DenseMethod() | AverageMethod():
            return 1
        case SparseUpcyclingMethod():
            return method.num_experts * method.granularity
        case CopiesOrExperts(num_experts=int(count)):
            return count
        case BTXMethod(expert_layout="split", chunks=int(chunks)):
            return sources * chunks
        case LoryToSparseMethod():
            return num_experts_of(method.lory, sources)
        case BTXMethod() | BAMMethod() | CopiesOrExperts() | BTMMethod():
            return sources
        case _:
            assert_never(method)


def ffn_parts(method: MethodSpec) -> int:
    """Return into how many experts one FFN is cut, so that each has ffn_dim / that."""
    match method:
        case BTXMethod(chunks=int(parts)) | SparseUpcyclingMethod(granularity=parts):
            return parts
        case _:
            return 1


def expert_tensors(method: MethodSpec, num_layers: int) -> frozenset[str]:
    """Return the names of the tensors that hold experts, stacked on their first axis."""
    own = {"ffn": ("gate", "up", "down"), "attention": ("query", "output")}
    if isinstance(method, BAMMethod) and method.kv == "per_expert":
        own["attention"] += ("key", "value")
    return frozenset(
        f"{module}.{name}"
        for module in routed_modules(method, num_layers)
        for name in own[module.rpartition(".")[2]]
    )


def frozen_tensors(method: MethodSpec, num_layers: int) -> frozenset[str]:
    """Return the names of the tensors that do not train in the mixture phase."""
    frozen = getattr(method, "frozen_experts", False)
    return expert_tensors(method, num_layers) if frozen else frozenset()


def hash_router(method: MethodSpec) -> HashRouter | None:
    """Return the hash that sends tokens to the method's FFN experts, if it is one."""
    router = getattr(method, "ffn_router", None)
    return router if isinstance(router, HashRouter) else None


def relu_router(method: MethodSpec) -> ReLURouter | None:
    """Return the router of the method's FFN experts whose gates are no softmax, if it is one."""
    router = getattr(method, "ffn_router", None)
    return router if isinstance(router, ReLURouter) else None


def has_bias(method: MethodSpec) -> bool:
    """Return whether a bias balances the load of the method's FFN experts."""
    return getattr(getattr(method, "ffn_router", None), "bias_rate", None) is not None


def has_shared(method: MethodSpec) -> bool:
    """Return whether an FFN that every token uses stands beside the routed experts."""
    return getattr(method, "shared_expert", False)


def routed_modules(method: MethodSpec, num_layers: int) -> tuple[str, ...]:
    """Return the modules that are routed, those of FFNs first."""
    parts = ("ffn", "attention") if isinstance(method, BAMMethod) else ("ffn",)
    layers = routed_layers(method, num_layers)
    return tuple(f"layers.{i}.{part}" for part in parts for i in layers)


def has_bos(method: MethodSpec) -> bool:
    """Return whether an end-of-text token stands before every sequence, inside the model."""
    if isinstance(method, LoryMethod | SegmentMoEMethod):
        return method.first_segment == "bos"
    return False


def routed_layers(method: MethodSpec, num_layers: int) -> tuple[int, ...]:
    """Return the layers whose FFN is a mixture; the others have a dense one."""
    match method:
        case DenseMethod() | AverageMethod() | BTMMethod():
            return ()
        case SparseUpcyclingMethod(layers="every_other"):
            return tuple(range(1, num_layers, 2))
        case SparseUpcyclingMethod(layers=layers) if layers != "all":
            return tuple(range(num_layers - int(layers.removeprefix("last_")), num_layers))
        case _:
            return tuple(range(num_layers))
