"""What the papers leave open of shapes and optimization."""

from typing import Any

from bam_lab.report.assumption_entry import Entry
from bam_lab.report.evidence import Evidence

_PHASES = ("seed_model", "expert", "mixture")

ENTRIES = (
    Entry(
        "Sequence length",
        lambda e: f"{e.model['max_seq_len']} tokens",
        "ours",
        "BAM: not stated (its FLOP table uses a context of 256)",
    ),
    Entry(
        "Documents in a sequence",
        lambda e: f"packed end to end with end-of-text between; attention {_reach(e)}",
        "ours",
        "BAM, BTX: not stated",
    ),
    Entry(
        "Block",
        lambda e: str(e.model["block"]),
        "stated",
        "BAM §3.1: parallel attention and FFN layers",
        "one norm a block follows from Table 9 (1,024 parameters)",
        stated="parallel",
    ),
    Entry(
        "Norm",
        lambda e: f"{_norm(e)}, epsilon {e.model['norm_eps']:g}",
        "ours",
        "BAM: called layernorm; one vector of d parameters a block, no bias",
    ),
    Entry(
        "Initialisation of the seed model",
        lambda e: f"normal with standard deviation {e.model['init_std']:g}, norms 1",
        "ours",
        "BAM: not stated",
    ),
    Entry(
        "Input and output embeddings tied",
        lambda e: "yes" if e.model["tie_embeddings"] else "no",
        "stated",
        "BAM Table 8: no at 590M, yes at 2B",
    ),
    Entry(
        "FFN hidden width",
        lambda e: f"{e.model['ffn_dim']} ({e.model['ffn_dim'] / e.model['dim']:g} × dim)",
        "derived",
        "BAM Tables 8 and 9: the printed FFN dimension counts gate and up together; Lory: not "
        "stated, 8/3 × dim gives its totals",
        "2 × dim in the small model, 4 × dim in the large one",
    ),
    Entry(
        "RoPE base",
        lambda e: "none, learned positions" if _learned(e) else f"{e.model['rope_theta']:g}",
        "ours",
        "BAM: rotary positions, base not stated",
        "the usual one",
    ),
    Entry(
        "AdamW betas",
        lambda e: f"{e.sizes['optimizer']['beta1']:g}, {e.sizes['optimizer']['beta2']:g}",
        "ours",
        "BAM, BTX: not stated; Lory: 0.9, 0.95",
    ),
    Entry(
        "Weight decay",
        lambda e: f"{e.sizes['optimizer']['weight_decay']:g}",
        "stated",
        "BAM §5, BTX §4.1: 0.1; Lory: not stated",
        stated="0.1",
    ),
    Entry(
        "Weight decay acts on",
        lambda e: "matrices (embeddings, LM head and routers too), not on norms",
        "ours",
        "BAM, BTX: not stated",
    ),
    Entry(
        "Gradient clipping, global norm",
        lambda e: f"{e.sizes['optimizer']['grad_clip']:g}",
        "ours",
        "BAM, BTX, Lory: not stated",
    ),
    Entry(
        "Peak learning rates: seed model, branches, mixture phase",
        lambda e: ", ".join(f"{_size(e, phase)['peak_lr']:g}" for phase in _PHASES),
        "ours",
        "BAM §5: branches at half the seed model's peak, here too",
        "tuned for this scale",
        stated_at={"bam-590m": "0.00012, 6e-05, 0.00012", "bam-2b": "0.01, 0.005, 0.0001"},
    ),
    Entry(
        "Warm-up steps: seed model, branches, mixture phase",
        lambda e: ", ".join(f"{_size(e, phase)['warmup_steps']:,}" for phase in _PHASES),
        "ours",
        "BAM §5: 1,500 at 590M, 2,000 and 1,000 at 2B (branches: not stated)",
        "linear from 0, as in the paper",
    ),
    Entry(
        "Learning rate after the warm-up of the mixture phase",
        lambda e: _fall(_size(e, "mixture")),
        "stated",
        "BAM §5, BTX and Lory: cosine; Sparse Upcycling: inverse square root",
        stated="cosine",
    ),
    Entry(
        "Final learning rate, share of the peak",
        lambda e: ", ".join(f"{_size(e, phase)['final_lr_share']:g}" for phase in _PHASES),
        "stated",
        "BAM §5: cosine to 10% at 590M, to 3% (mixture phase 10%) at 2B",
        "the schedule ends at the steps that the match gave each arm",
        stated="0.1, 0.1, 0.1",
        stated_at={"bam-2b": "0.03, 0.03, 0.1"},
    ),
    Entry(
        "Optimizer state at the start of the mixture phase",
        lambda e: "fresh, with warm-up",
        "ours",
        "BAM, BTX: not stated; Sparse Upcycling: fresh for language",
    ),
    Entry(
        "Compute matching",
        lambda e: e.match_on,
        "ours",
        "BAM §5: equal TPU core-days of the mixture phase",
        "FLOPs do not depend on the machine; device time is in the ledger",
    ),
)


def _size(evidence: Evidence, phase: str) -> dict[str, Any]:
    size: dict[str, Any] = evidence.sizes["phases"][phase]
    return size


def _fall(size: dict[str, Any]) -> str:
    if size.get("schedule", "cosine") == "cosine":  # the only one before the field existed
        return "cosine"
    return f"stable, then over the last {size['decay_share']:.0%} of the steps as 1 − √x"


def _norm(evidence: Evidence) -> str:
    # Results from before the field existed lack it.
    return "LayerNorm without bias" if evidence.model.get("norm") == "layer" else "RMSNorm"


def _reach(evidence: Evidence) -> str:
    if evidence.model.get("cross_document_attention", True):
        return "crosses their borders"
    return "stays inside them (FLOPs are counted as if it did not)"


def _learned(evidence: Evidence) -> bool:
    return evidence.model.get("positions") == "learned"
