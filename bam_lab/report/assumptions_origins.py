"""What the papers leave open of where experts come from: parts, fresh channels, what trains."""

from typing import Any

from bam_lab.report.assumption_entry import ABSENT, Entry, per_arm

ENTRIES = (
    Entry(
        "Experts cut from FFNs: how",
        lambda e: per_arm(e, _cut),
        "stated",
        "BTX §4.3: parts of width ffn_dim / C, or the n-th parts of all models joined",
        "neighbouring channels; outputs are not scaled, the paper gives no factor",
    ),
    Entry(
        "Copies cut in parts: factor on their output",
        lambda e: per_arm(e, _scale),
        "ours",
        "arXiv:2410.07524 §2.3: all projections by the cube root of E G² / T, for softmax first",
        "the down projection alone, by the number of parts: exact for gates that sum to 1, where "
        "the paper's is for another activation; found worse there",
    ),
    Entry(
        "Channels of copies drawn anew",
        lambda e: per_arm(e, _reinit),
        "stated",
        "arXiv:2502.19261 §3: mean and standard deviation of the weights they replace",
        "per copy and per matrix; which channels is drawn once a copy and layer",
    ),
    Entry(
        "Experts that are not copied",
        lambda e: per_arm(e, _partly),
        "ours",
        "Sparse Upcycling App. B.5: part of the experts, how the others start is not stated",
        "from the model's own initialisation",
    ),
    Entry(
        "Shared expert: width, start and weight",
        lambda e: per_arm(e, _shared),
        "ours",
        "DeepSeekMoE (arXiv:2401.06066 §3.2): one or more beside the routed, added without a gate, "
        "trained from scratch; BTX, BAM and arXiv:2410.07524 have none",
        "as wide as a dense FFN. Where dense models are read, `down` of the shared and the routed "
        "experts is halved, so that equal experts with gates that sum to 1 are the dense FFN",
    ),
    Entry(
        "Frozen experts: what trains beside them",
        lambda e: per_arm(e, _frozen),
        "ours",
        "not in BTX or BAM",
        "no weight decay on what is frozen; its gradient product is not counted",
    ),
)


def _cut(method: dict[str, Any]) -> Any:
    match method.get("expert_layout", "whole"):
        case "split":
            return f"each in {method['chunks']}"
        case "blended":
            return "blended"
        case _:
            return ABSENT


def _scale(method: dict[str, Any]) -> Any:
    parts = method.get("granularity", 1)
    anew = method.get("start") == "scratch"
    return f"{parts} on down" if parts > 1 and not anew else ABSENT


def _reinit(method: dict[str, Any]) -> Any:
    share = method.get("reinit_share", 0)
    return f"{share:.0%} of each" if share else ABSENT


def _partly(method: dict[str, Any]) -> Any:
    copied = method.get("copied_experts")
    return ABSENT if copied is None else f"{method['num_experts'] - copied}, normal init_std"


def _shared(method: dict[str, Any]) -> Any:
    if not method.get("shared_expert", False):
        return ABSENT
    if method.get("start") == "scratch":
        return "ffn_dim, drawn anew, 1"
    first = "mean of the dense experts" if method["method"] == "btx" else "the seed model's"
    return f"ffn_dim, {first}, 1; all down projections halved"


def _frozen(method: dict[str, Any]) -> Any:
    if not method.get("frozen_experts", False):
        return ABSENT
    attention = "shared keys and values, " if method.get("kv") == "shared" else ""
    attention = "attention, " if method["method"] == "btx" else attention
    shared = ", shared expert" if method.get("shared_expert", False) else ""
    return f"{attention}embeddings, norms, routers{shared}"
