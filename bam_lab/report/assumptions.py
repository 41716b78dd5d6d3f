"""The assumption register: every value that the papers leave open, what we took, and why.

The values are read from the run's own resolved specs, never from this file, so the register cannot
disagree with what ran. `stated` is printed in a paper, `derived` follows from its numbers, `ours`
is a choice of this project.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bam_lab.report.evidence import Evidence

Basis = Literal["stated", "derived", "ours"]


@dataclass(frozen=True)
class Assumption:
    """Hold one line of the register."""

    subject: str
    value: str
    basis: Basis
    place: str
    why: str


@dataclass(frozen=True)
class _Entry:
    """Say how one line is read from a run.

    Attributes:
        stated: the paper's value, where it is one value.
        stated_at: scale -> the paper's value there, where it states one a scale.
    """

    subject: str
    read: Callable[[Evidence], str]
    basis: Basis
    place: str
    why: str = ""
    stated: str = ""
    stated_at: Mapping[str, str] = field(default_factory=dict)

    def line(self, evidence: Evidence) -> Assumption:
        """Return the line of one run; a value other than the stated one is ours."""
        value = self.read(evidence)
        stated = self.stated_at.get(evidence.scale, self.stated)
        if stated and value != stated:
            why = f"departs from the stated {stated}"
            return Assumption(self.subject, value, "ours", self.place, why)
        if evidence.scale in self.stated_at:
            return Assumption(self.subject, value, "stated", self.place, "")
        return Assumption(self.subject, value, self.basis, self.place, self.why)


_PHASES = ("seed_model", "expert", "mixture")

_ENTRIES = (
    _Entry(
        "FFN balance loss: weight α",
        lambda e: _per_arm(e, lambda m: _get(m, "balance_loss", "weight")),
        "ours",
        "BAM §3: not stated; BTX §3: 0.01 for top-2; Sparse Upcycling: 0.01",
        "BTX's value, also Switch's usual one",
    ),
    _Entry(
        "FFN balance loss: form",
        lambda e: _per_arm(e, lambda m: _get(m, "balance_loss", "form")),
        "stated",
        "BAM §3: N Σ f P with f the share of tokens (`tokens`); BTX §3: gates (`gates`); "
        "Sparse Upcycling's code: `tokens`",
        "each paper's own; a BTX arm inside BAM's table takes BAM's",
    ),
    _Entry(
        "Router z-loss: weight β",
        lambda e: _per_arm(e, lambda m: _get(m, "z_loss")),
        "ours",
        "BAM §3: the loss is stated, its weight is not; BTX: none mentioned; Sparse Upcycling's "
        "code: 0",
        "the usual 0.001 of ST-MoE",
    ),
    _Entry(
        "Attention router: balance loss",
        lambda e: _per_arm(e, lambda m: _get(m, "attention_balance_loss")),
        "stated",
        "BAM §4: none described for soft routing",
        "none for top-k either, so that arms differ in routing alone",
    ),
    _Entry(
        "Router initialisation, standard deviation",
        lambda e: _per_arm(e, lambda m: _get(m, "router_init_std")),
        "ours",
        "BAM, BTX, Lory: distribution not stated; Sparse Upcycling's code: N(0, 0.02²)",
        "Sparse Upcycling's value; no bias",
    ),
    _Entry(
        "FFN gate: order of softmax and top-k",
        lambda e: _per_arm(e, lambda m: _router(_get(m, "ffn_router"))),
        "stated",
        "BAM §3, Sparse Upcycling §4: softmax, then top-k, not renormalised; BTX §3: top-k, then "
        "softmax",
    ),
    _Entry(
        "Attention gate",
        lambda e: _per_arm(e, lambda m: _router(_get(m, "attention_router"))),
        "stated",
        "BAM §4: softmax over all experts; Table 6 for top-k",
        "that top-k is softmax first, as in the published attention mixtures, is derived",
    ),
    _Entry(
        "Initial shared keys and values (KV sharing)",
        lambda e: _kv(e),
        "derived",
        "BAM §4.1: not stated",
        "the paper's general rule: what is not an expert is the uniform mean of the dense models",
    ),
    _Entry(
        "Everything that is not an expert or a router",
        lambda e: _per_arm(e, _unrouted),
        "stated",
        "BAM §4; BTX §3; Sparse Upcycling: the seed model's own",
        "accumulated in float64",
    ),
    _Entry(
        "Sparse Upcycling: layers that become mixtures",
        lambda e: _per_arm(e, lambda m: _get(m, "layers")),
        "stated",
        "Sparse Upcycling §4, App. B: every other layer from the second, for language",
        stated="every_other",
    ),
    _Entry(
        "Sparse Upcycling: noise on copies, standard deviation",
        lambda e: _per_arm(e, lambda m: _get(m, "copy_noise_std")),
        "stated",
        "Sparse Upcycling: identical copies",
        stated="0.0",
    ),
    _Entry(
        "Lory: segment length",
        lambda e: _per_arm(e, lambda m: _get(m, "segment_len")),
        "stated",
        "Lory §4.1: 256 of 4,096 tokens",
        stated="256",
    ),
    _Entry(
        "Lory: routing of the first segment",
        lambda e: _per_arm(e, lambda m: _get(m, "first_segment")),
        "stated",
        "Lory §3, App. A: by its own mean, without gradient (`own_mean`): its tokens see later "
        "ones of the segment, in training and in scoring",
        stated="own_mean",
    ),
    _Entry(
        "Lory: routing of held-out text",
        lambda e: _per_arm(e, _held_out_routing),
        "ours",
        "Lory: once, from the prompt; again at every segment in its Tables 6 and 9",
        "held-out text has no prompt",
    ),
    _Entry(
        "Capacity factor of experts",
        lambda e: "none: no token is dropped",
        "ours",
        "BAM: not stated",
        "dropping would make a token's output depend on its batch",
    ),
    _Entry(
        "Sequence length",
        lambda e: f"{e.model['max_seq_len']} tokens",
        "ours",
        "BAM: not stated (its FLOP table uses a context of 256)",
    ),
    _Entry(
        "Documents in a sequence",
        lambda e: "packed end to end with end-of-text between; attention crosses their borders",
        "ours",
        "BAM, BTX: not stated",
    ),
    _Entry(
        "Block",
        lambda e: str(e.model["block"]),
        "stated",
        "BAM §3.1: parallel attention and FFN layers",
        "one norm a block follows from Table 9 (1,024 parameters)",
        stated="parallel",
    ),
    _Entry(
        "Norm",
        lambda e: f"{_norm(e)}, epsilon {e.model['norm_eps']:g}",
        "ours",
        "BAM: called layernorm; one vector of d parameters a block, no bias",
    ),
    _Entry(
        "Initialisation of the seed model",
        lambda e: f"normal with standard deviation {e.model['init_std']:g}, norms 1",
        "ours",
        "BAM: not stated",
    ),
    _Entry(
        "Input and output embeddings tied",
        lambda e: "yes" if e.model["tie_embeddings"] else "no",
        "stated",
        "BAM Table 8: no at 590M, yes at 2B",
    ),
    _Entry(
        "FFN hidden width",
        lambda e: f"{e.model['ffn_dim']} ({e.model['ffn_dim'] / e.model['dim']:g} × dim)",
        "derived",
        "BAM Tables 8 and 9: the printed FFN dimension counts gate and up together",
        "2 × dim in the small model, 4 × dim in the large one",
    ),
    _Entry(
        "RoPE base",
        lambda e: "none, learned positions" if _learned(e) else f"{e.model['rope_theta']:g}",
        "ours",
        "BAM: rotary positions, base not stated",
        "the usual one",
    ),
    _Entry(
        "AdamW betas",
        lambda e: f"{e.sizes['optimizer']['beta1']:g}, {e.sizes['optimizer']['beta2']:g}",
        "ours",
        "BAM, BTX: not stated; Lory: 0.9, 0.95",
    ),
    _Entry(
        "Weight decay",
        lambda e: f"{e.sizes['optimizer']['weight_decay']:g}",
        "stated",
        "BAM §5, BTX §4.1: 0.1",
        stated="0.1",
    ),
    _Entry(
        "Weight decay acts on",
        lambda e: "matrices (embeddings, LM head and routers too), not on norms",
        "ours",
        "BAM, BTX: not stated",
    ),
    _Entry(
        "Gradient clipping, global norm",
        lambda e: f"{e.sizes['optimizer']['grad_clip']:g}",
        "ours",
        "BAM, BTX: not stated",
    ),
    _Entry(
        "Peak learning rates: seed model, branches, mixture phase",
        lambda e: ", ".join(f"{_size(e, phase)['peak_lr']:g}" for phase in _PHASES),
        "ours",
        "BAM §5: branches at half the seed model's peak, here too",
        "tuned for this scale",
        stated_at={"bam-590m": "0.00012, 6e-05, 0.00012", "bam-2b": "0.01, 0.005, 0.0001"},
    ),
    _Entry(
        "Warm-up steps: seed model, branches, mixture phase",
        lambda e: ", ".join(f"{_size(e, phase)['warmup_steps']:,}" for phase in _PHASES),
        "ours",
        "BAM §5: 1,500 at 590M, 2,000 and 1,000 at 2B (branches: not stated)",
        "linear from 0, as in the paper",
    ),
    _Entry(
        "Final learning rate, share of the peak",
        lambda e: ", ".join(f"{_size(e, phase)['final_lr_share']:g}" for phase in _PHASES),
        "stated",
        "BAM §5: cosine to 10% at 590M, to 3% (mixture phase 10%) at 2B",
        "the schedule ends at the steps that the match gave each arm",
        stated="0.1, 0.1, 0.1",
        stated_at={"bam-2b": "0.03, 0.03, 0.1"},
    ),
    _Entry(
        "Optimizer state at the start of the mixture phase",
        lambda e: "fresh, with warm-up",
        "ours",
        "BAM, BTX: not stated; Sparse Upcycling: fresh for language",
    ),
    _Entry(
        "General share in each branch's data mix",
        lambda e: f"{e.recipe['expert']['general_share']:.0%}",
        "stated",
        "BAM §5: 10% Common Crawl",
        "what stands in for Common Crawl is named under Text",
        stated="10%",
    ),
    _Entry(
        "Data mix of the seed model",
        lambda e: _mix(e, "seed_model"),
        "ours",
        "BAM: an unnamed general mix",
        "a share of the domains, so that the seed model knows something of each",
    ),
    _Entry(
        "Data mix of the mixture phase",
        lambda e: _mix(e, "mixture"),
        "stated",
        "BAM §5: 25% of each",
        stated="general 25%, code 25%, law 25%, math 25%",
    ),
    _Entry(
        "Compute matching",
        lambda e: e.match_on,
        "ours",
        "BAM §5: equal TPU core-days of the mixture phase",
        "FLOPs do not depend on the machine; device time is in the ledger",
    ),
)


def register(evidence: Evidence) -> tuple[Assumption, ...]:
    """Return the register with the values of this run; what no arm has is left out."""
    lines = (entry.line(evidence) for entry in _ENTRIES)
    return tuple(line for line in lines if line.value)


def _per_arm(evidence: Evidence, read: Callable[[dict[str, Any]], Any]) -> str:
    """Return one value where all arms agree, else each value with its arms."""
    found: dict[str, list[str]] = {}
    for arm in evidence.arms:
        value = read(arm.method)
        if value is not _ABSENT:
            found.setdefault("none" if value is None else f"{value}", []).append(arm.name)
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{value} ({', '.join(arms)})" for value, arms in found.items())


_ABSENT = object()


def _get(method: dict[str, Any], *path: str) -> Any:
    value: Any = method
    for key in path:
        if value is None:
            return None
        if key not in value:
            return _ABSENT
        value = value[key]
    return value


def _router(router: Any) -> Any:
    if router is _ABSENT:
        return _ABSENT
    if router["select"] == "all":
        return "softmax over all experts"
    order = "top-k, then softmax" if router["renormalize"] else "softmax, then top-k"
    return f"{order}, k = {router['top_k']}"


def _unrouted(method: dict[str, Any]) -> Any:
    match method["method"]:
        case "dense":
            return _ABSENT
        case "lory" if method["num_experts"] is not None:
            return "the seed model's, as it is"
        case "sparse_upcycling":
            return "the seed model's, as it is"
        case _:
            return "uniform mean of the dense models"


def _held_out_routing(method: dict[str, Any]) -> Any:
    return "again at every segment, as in training" if method["method"] == "lory" else _ABSENT


def _kv(evidence: Evidence) -> str:
    shared = [arm.name for arm in evidence.arms if arm.method.get("kv") == "shared"]
    return f"mean of the dense models' ({', '.join(shared)})" if shared else ""


def _size(evidence: Evidence, phase: str) -> dict[str, Any]:
    size: dict[str, Any] = evidence.sizes["phases"][phase]
    return size


def _mix(evidence: Evidence, phase: str) -> str:
    """Return a phase's data mix in the order of the report's columns."""
    mix: dict[str, float] = evidence.recipe[phase]["mix"]
    return ", ".join(f"{name} {mix[name]:.0%}" for name in evidence.domains if name in mix)


def _norm(evidence: Evidence) -> str:
    # Results from before the field existed lack it.
    return "LayerNorm without bias" if evidence.model.get("norm") == "layer" else "RMSNorm"


def _learned(evidence: Evidence) -> bool:
    return evidence.model.get("positions") == "learned"
