"""What makes no sense in one arm that routes segments or merges parameters."""

from collections.abc import Iterator

from bam_lab.spec.recipe import SEED_MODEL
from bam_lab.spec.routers import ExpertChoiceRouter
from bam_lab.spec.segments import CopiesOrExperts, LoryMethod, SegmentMoEMethod


def segment_problems(method: CopiesOrExperts) -> Iterator[tuple[str, str]]:
    """Yield each setting that contradicts another or has no effect, and what must hold."""
    if method.num_experts is not None and method.experts:
        yield (
            "num_experts",
            "must not be given with experts: either copies of the seed model or dense experts. "
            "Remove one.",
        )
    elif method.experts and set(method.experts) == {SEED_MODEL}:
        yield (
            "experts",
            f"must be num_experts: {len(method.experts)} where all are copies of the seed model, "
            "so that one run has one name.",
        )
    if isinstance(method, LoryMethod) and (method.routing, method.first_segment) == (
        "prefix",
        "uniform",
    ):
        yield (
            "first_segment",
            "must not be uniform with routing: prefix: no router would ever decide. Take own_mean "
            "or bos.",
        )
    if isinstance(method, SegmentMoEMethod):
        yield from _segment_moe_problems(method)


def _segment_moe_problems(method: SegmentMoEMethod) -> Iterator[tuple[str, str]]:
    router = method.ffn_router
    if isinstance(router, ExpertChoiceRouter):
        if method.balance_loss is not None:
            yield (
                "balance_loss",
                "must not be given where experts choose: their load is even already. Remove it.",
            )
    elif router.capacity_factor is not None:
        yield (
            "ffn_router",
            "must have no capacity_factor where whole segments are routed: a limit in tokens says "
            "nothing of them. Remove it.",
        )
