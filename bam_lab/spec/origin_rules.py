"""What makes no sense about where a mixture's weights come from and which of them train."""

from collections.abc import Iterator, Sequence

from bam_lab.spec.experts import is_mixture, num_experts_of, starts_anew
from bam_lab.spec.methods import BAMMethod, BTXMethod, MethodSpec
from bam_lab.spec.segments import CopiesOrExperts


def origin_problems(method: MethodSpec, sources: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each setting that contradicts another or has no effect, and what must hold.

    Args:
        method: the arm's method.
        sources: the dense models that it reads.
    """
    if starts_anew(method):
        if isinstance(method, CopiesOrExperts) and method.num_experts is None:
            yield (
                "start",
                "must not be scratch where dense experts are mixed: none is read. Give "
                "num_experts, or take start out.",
            )
        for key in ("copy_noise_std", "reinit_share", "copied_experts"):
            if value := getattr(method, key, None):
                yield (
                    key,
                    f"must not be given with start: scratch, got {value}: nothing is copied. "
                    "Remove one.",
                )
    elif is_mixture(method) and num_experts_of(method, len(sources)) == 1:
        yield (
            "experts",
            f"must give two experts or more, got {', '.join(sources)} alone: its router would have "
            "nothing to choose. Name another.",
        )
    frozen = isinstance(method, BTXMethod | BAMMethod) and method.frozen_experts
    layout = method.expert_layout if isinstance(method, BTXMethod) else "whole"
    if frozen and layout == "whole" and len(set(sources)) == 1:
        yield (
            "frozen_experts",
            f"must be false where every expert is {sources[0]}: they would stay alike for ever. "
            "Mix other models or let them train.",
        )
