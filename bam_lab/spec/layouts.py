"""Whether the FFNs of dense models can be laid out as experts as a method asks."""

from collections.abc import Iterator

from bam_lab.spec.mixtures import BTXMethod, SparseUpcyclingMethod
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.routers import ReLURouter, SoftRouter, TopKRouter


def layout_misfits(
    method: BTXMethod, model: ModelSpec, num_experts: int
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with how the dense models' FFNs are laid out as experts."""
    layout, chunks = method.expert_layout, method.chunks
    if (layout == "split") != (chunks is not None):
        yield (
            "chunks",
            "must be given with expert_layout: split, and only there, got "
            f"{'none' if chunks is None else chunks} with {layout}.",
        )
    elif chunks is not None and model.ffn_dim % chunks:
        yield "chunks", f"must divide ffn_dim {model.ffn_dim}, got {chunks}."
    if layout == "blended" and model.ffn_dim % num_experts:
        yield (
            "expert_layout",
            f"must not be blended where the number of experts {num_experts} does not divide "
            f"ffn_dim {model.ffn_dim}. Use whole or split.",
        )


def copy_misfits(method: SparseUpcyclingMethod, model: ModelSpec) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with how the seed model's FFN is copied, cut and drawn anew."""
    parts, router = method.granularity, method.ffn_router
    if model.ffn_dim % parts:
        yield "granularity", f"must divide ffn_dim {model.ffn_dim}, got {parts}."
    elif 0 < method.reinit_share * model.ffn_dim / parts < 1:
        yield (
            "reinit_share",
            f"must give a whole channel of {model.ffn_dim // parts}, got {method.reinit_share}. "
            "Raise it.",
        )
    if parts > 1 and isinstance(router, ReLURouter):
        yield (
            "granularity",
            f"must be 1 with score: relu, got {parts}: the parts of a copy would each have the "
            "gate of the whole. Use score: softmax.",
        )
    elif parts > 1 and not isinstance(router, SoftRouter | TopKRouter):
        yield (
            "granularity",
            f"must be 1 with a router that does not choose by its logits alone, got {parts}: the "
            "parts of a copy would not be chosen together. Use select: top_k or all.",
        )
    elif isinstance(router, TopKRouter) and router.top_k % parts:
        yield (
            "granularity",
            f"must divide top_k {router.top_k}, got {parts}: whole copies are chosen at the start.",
        )
    if method.copied_experts is not None and method.copied_experts >= method.num_experts:
        yield (
            "copied_experts",
            f"must be below num_experts {method.num_experts}, got {method.copied_experts}: all are "
            "copies without it. Lower it or take it out.",
        )
