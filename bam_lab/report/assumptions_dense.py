"""What the papers leave open of whole models: from scratch, averaged, side by side, converted."""

from typing import Any

from bam_lab.report.assumption_entry import ABSENT, Entry, get, per_arm

ENTRIES = (
    Entry(
        "Arms from scratch: learning rate",
        lambda e: per_arm(e, _scratch_rate),
        "ours",
        "Sparse Upcycling §4.1: its own schedule from scratch, at upcycling's batch",
        "a model that starts anew trains as the seed model did, on the batches of all arms",
    ),
    Entry(
        "Branch-Train-Merge: temperature of the posterior",
        lambda e: per_arm(e, lambda m: get(m, "temperature") if m["method"] == "btm" else ABSENT),
        "ours",
        "BTX §4: not stated; arXiv:2303.14177: 0.1 over squared distances",
        "that value, over cosines",
    ),
    Entry(
        "Branch-Train-Merge: what a domain is known by",
        lambda e: per_arm(e, _only("btm", "mean tf-idf vector of its training documents")),
        "ours",
        "BTX §4: cosine with the mean tf-idf vector of each expert's data",
        "tokens of our tokenizer; the seed model by its data mix; a branch without its general "
        "share; every token's posterior from all text before it in the window",
    ),
    Entry(
        "Lory to sparse: share of the budget after the conversion",
        lambda e: per_arm(e, lambda m: get(m, "sparse_share")),
        "ours",
        "Lory §6: left to future work",
        "a fresh optimizer and schedule on either side",
    ),
    Entry(
        "Low-rank branches",
        lambda e: per_arm(e, _low_rank),
        "ours",
        "no paper: a reviewer's question",
        "A by peft's Kaiming start, B zero; no dropout; merged before mixing",
    ),
)


def _scratch_rate(method: dict[str, Any]) -> Any:
    return "the seed model's" if method.get("start") == "scratch" else ABSENT


def _only(name: str, value: str) -> Any:
    return lambda method: value if method["method"] == name else ABSENT


def _low_rank(method: dict[str, Any]) -> Any:
    branch = method.get("branch")
    if not branch:
        return ABSENT
    lora = branch["lora"]
    return (
        f"rank {lora['rank']}, alpha {lora['alpha']:g} on {' and '.join(lora['targets'])}, equal "
        f"{'tokens' if branch['equal'] == 'tokens' else 'FLOPs'}"
    )
