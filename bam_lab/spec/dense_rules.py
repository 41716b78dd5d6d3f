"""Rules for arms of whole models, and for how branches are trained: (setting, what must hold)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import isinf

from bam_lab.spec.messages import nearest
from bam_lab.spec.methods import (
    AverageMethod,
    BAMMethod,
    BTMMethod,
    BTXMethod,
    DenseMethod,
    MethodSpec,
)
from bam_lab.spec.recipe import SEED_MODEL

Problem = tuple[str, str]


def dense_problems(
    method: MethodSpec, arms: Mapping[str, MethodSpec], sources: Sequence[str]
) -> Iterator[Problem]:
    """Yield the problems of one arm among `arms` that reads the dense models `sources`."""
    match method:
        case DenseMethod():
            yield from _sizes(method, arms)
        case AverageMethod():
            yield from _once(sources)
            if method.weights is not None and set(method.weights) != set(sources):
                yield (
                    "weights",
                    f"must name each of the experts {', '.join(sources)}, got "
                    f"{', '.join(method.weights) or 'none'}.",
                )
            elif method.weights is not None and isinf(sum(method.weights.values())):
                yield "weights", "must have a finite sum, got infinity. Make them smaller."
        case BTMMethod():
            yield from _once(sources)
            if method.top_k > len(sources):
                yield (
                    "top_k",
                    f"must be at most the number of experts {len(sources)}, got {method.top_k}. "
                    "Lower it.",
                )
            if method.top_k == 1 and "temperature" in method.model_fields_set:
                yield (
                    "temperature",
                    "must not be given with top_k 1: the nearest expert is the same at every "
                    "temperature. Remove it.",
                )
        case BTXMethod() | BAMMethod():
            yield from _branch(method, sources)
        case _:
            pass


def _sizes(method: DenseMethod, arms: Mapping[str, MethodSpec]) -> Iterator[Problem]:
    for key in ("ffn_dim", "size_of"):
        if getattr(method, key) is not None and method.start == "seed_model":
            yield (
                key,
                "must not be given with start: seed_model, whose width is the seed model's. Take "
                "start: scratch.",
            )
    if method.size_of is None:
        return
    if method.ffn_dim is not None:
        yield "size_of", "must not be given with ffn_dim: one says the other. Remove one."
    other = arms.get(method.size_of.arm)
    if other is None or (isinstance(other, DenseMethod) and other.size_of is not None):
        known = [name for name, arm in arms.items() if getattr(arm, "size_of", None) is None]
        yield (
            "size_of",
            f"must name an arm that has its own size, got {method.size_of.arm!r}. "
            f"{nearest(method.size_of.arm, known)}",
        )


def _once(sources: Sequence[str]) -> Iterator[Problem]:
    again = [name for name, count in Counter(sources).items() if count > 1]
    if again:
        yield "experts", f"must name each dense model once, got {', '.join(again)} again."
    elif len(sources) < 2:
        yield "experts", "must name at least two dense models. Add one."


def _branch(method: BTXMethod | BAMMethod, sources: Sequence[str]) -> Iterator[Problem]:
    if method.branch is None:
        return
    targets = method.branch.lora.targets
    if not targets or len(set(targets)) < len(targets):
        got = ", ".join(targets) or "none"
        yield "branch", f"must have lora.targets of ffn and attention, each once, got {got}."
    elif isinstance(method, BTXMethod) and "ffn" not in targets:
        yield (
            "branch",
            "must have ffn in lora.targets where FFNs are mixed, got attention alone: all experts "
            "would be the seed model's. Add ffn.",
        )
    elif isinstance(method, BAMMethod) and method.frozen_experts and len(targets) < 2:
        yield (
            "branch",
            "must have lora.targets of ffn and attention where experts are frozen, got "
            f"{targets[0]} alone: the other experts would stay the seed model's. Add it.",
        )
    if set(sources) == {SEED_MODEL}:
        yield "branch", "must not be given where all experts are the seed model: none is trained."
