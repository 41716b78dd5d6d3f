"""What makes no sense in one arm that routes segments or merges parameters."""

from collections.abc import Iterator

from bam_lab.spec.model import ModelSpec
from bam_lab.spec.recipe import SEED_MODEL
from bam_lab.spec.routers import ExpertChoiceRouter
from bam_lab.spec.segments import CopiesOrExperts, LoryMethod, SegmentMoEMethod


def segment_problems(method: CopiesOrExperts) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with how the experts are named, and what must hold."""
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


def segment_misfits(
    method: LoryMethod | SegmentMoEMethod, model: ModelSpec
) -> Iterator[tuple[str, str]]:
    """Yield each setting that another one or the model's shape rules out, and what must hold."""
    if model.max_seq_len % method.segment_len or model.max_seq_len < 2 * method.segment_len:
        yield (
            "segment_len",
            f"must divide max_seq_len {model.max_seq_len} into two segments or more, got "
            f"{method.segment_len}.",
        )
    if isinstance(method, SegmentMoEMethod):
        yield from _segment_moe_problems(method)
    elif method.routing == "prefix" and method.first_segment == "uniform":
        yield (
            "first_segment",
            "must not be uniform with routing: prefix: no router would ever decide. Take own_mean "
            "or bos.",
        )


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
