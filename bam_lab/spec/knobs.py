"""The knobs that a match may turn in an arm: how many experts, how many a token has, how wide."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from bam_lab.spec.dense_rules import dense_problems
from bam_lab.spec.experts import experts_of, is_mixture, sources_of
from bam_lab.spec.methods import (
    BAMMethod,
    BTMMethod,
    BTXMethod,
    DenseMethod,
    LoryToSparseMethod,
    MethodSpec,
    SparseUpcyclingMethod,
)
from bam_lab.spec.misfits import misfits
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.origin_rules import origin_problems
from bam_lab.spec.recipe import SEED_MODEL
from bam_lab.spec.router_rules import router_problems
from bam_lab.spec.routers import TopKRouter
from bam_lab.spec.segments import CopiesOrExperts

Size = Literal["num_experts", "top_k", "ffn_dim"]
MOST_EXPERTS = 256
"""Search no further; no paper here has more."""
WIDEST = 1 << 20


def lacks(method: MethodSpec, knob: Size) -> str:
    """Return why a method has no such knob; empty if it has."""
    match knob:
        case "num_experts":
            if isinstance(method, BTXMethod) and method.expert_layout != "whole":
                return f"expert_layout: {method.expert_layout} cuts experts, so it cannot copy one"
            return "" if is_mixture(method) else f"method: {method.method} has no experts to add"
        case "top_k":
            if isinstance(method, BTMMethod) or isinstance(_router(method), TopKRouter):
                return ""
            return "the arm has no ffn_router with select: top_k"
        case "ffn_dim":
            if isinstance(method, DenseMethod) and method.start == "scratch":
                return "" if method.size_of is None else "size_of says the width"
            return "only a dense model from scratch has a width of its own"


def span(method: MethodSpec, knob: Size, recipe_experts: Sequence[str]) -> range:
    """Return the values that a knob may take, the fewest first; not all of them fit every arm."""
    match knob:
        case "num_experts":
            fewest = 2 if _counted(method) else len(sources_of(method, recipe_experts))
            return range(fewest, MOST_EXPERTS + 1)
        case "top_k":
            return range(1, len(experts_of(method, recipe_experts)) + 1)
        case "ffn_dim":
            return range(1, WIDEST + 1)


def turn(method: MethodSpec, knob: Size, value: int, recipe_experts: Sequence[str]) -> MethodSpec:
    """Return the method with a knob at `value`.

    Experts beyond the dense ones that a method mixes are copies of the seed model, as
    arXiv:2408.08274 Table 4 adds them.
    """
    change: dict[str, Any]
    match knob:
        case "num_experts" if _counted(method):
            change = {"num_experts": value}
        case "num_experts":
            names = sources_of(method, recipe_experts)
            change = {"experts": (*names, *(SEED_MODEL,) * (value - len(names)))}
        case "top_k" if isinstance(method, BTMMethod):
            change = {"top_k": value}
        case "top_k":
            change = {"ffn_router": _router(method).model_copy(update={"top_k": value})}
        case "ffn_dim":
            change = {"ffn_dim": value}
    return method.model_copy(update=change)


def value_of(
    method: MethodSpec, knob: Size, model: ModelSpec, recipe_experts: Sequence[str]
) -> int:
    """Return where a knob stands."""
    match knob:
        case "num_experts":
            counted: int | None = getattr(method, "num_experts", None)
            return counted or len(experts_of(method, recipe_experts))
        case "top_k":
            found: int = (method if isinstance(method, BTMMethod) else _router(method)).top_k
            return found
        case "ffn_dim":
            width: int | None = getattr(method, "ffn_dim", None)
            return width or model.ffn_dim


def fits(method: MethodSpec, model: ModelSpec, recipe_experts: Sequence[str]) -> bool:
    """Return whether no rule of the spec is against an arm whose knobs were turned."""
    return next(_problems(method, model, recipe_experts), None) is None


def _problems(
    method: MethodSpec, model: ModelSpec, recipe_experts: Sequence[str]
) -> Iterator[object]:
    experts = len(experts_of(method, recipe_experts))
    sources = sources_of(method, recipe_experts)
    yield from misfits(method, model, experts)
    yield from router_problems(method, experts, method.model_fields_set)
    yield from origin_problems(method, sources)
    if isinstance(method, BTMMethod | BTXMethod | BAMMethod):
        yield from dense_problems(method, {}, sources)


def _counted(method: MethodSpec) -> bool:
    """Return whether a number says how many experts there are, not a list of dense models."""
    if isinstance(method, CopiesOrExperts | LoryToSparseMethod):
        return method.num_experts is not None
    return isinstance(method, SparseUpcyclingMethod)


def _router(method: MethodSpec) -> Any:
    return getattr(method, "ffn_router", None)
