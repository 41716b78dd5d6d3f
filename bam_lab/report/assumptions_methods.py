"""What the papers leave open of their methods: routers, losses, experts, segments."""

from typing import Any

from bam_lab.report.assumption_entry import ABSENT, Entry, get, per_arm
from bam_lab.report.evidence import Evidence
from bam_lab.report.settings import shown

ENTRIES = (
    Entry(
        "FFN balance loss: weight α",
        lambda e: per_arm(e, lambda m: get(m, "balance_loss", "weight")),
        "ours",
        "BAM §3: not stated; BTX §3: 0.01 for top-2; Sparse Upcycling: 0.01",
        "BTX's value, also Switch's usual one",
    ),
    Entry(
        "FFN balance loss: form",
        lambda e: per_arm(e, lambda m: get(m, "balance_loss", "form")),
        "stated",
        "BAM §3: N Σ f P with f the share of tokens (`tokens`); BTX §3: gates (`gates`); "
        "Sparse Upcycling's code: `tokens`",
        "each paper's own; a BTX arm inside BAM's table takes BAM's",
    ),
    Entry(
        "Router z-loss: weight β",
        lambda e: per_arm(e, lambda m: get(m, "z_loss")),
        "ours",
        "BAM §3: the loss is stated, its weight is not; BTX: none mentioned; Sparse Upcycling's "
        "code: 0",
        "the usual 0.001 of ST-MoE",
    ),
    Entry(
        "Attention router: balance loss",
        lambda e: per_arm(e, lambda m: get(m, "attention_balance_loss")),
        "stated",
        "BAM §4: none described for soft routing",
        "none for top-k either, so that arms differ in routing alone",
    ),
    Entry(
        "Router initialisation, standard deviation",
        lambda e: per_arm(e, lambda m: get(m, "router_init_std")),
        "ours",
        "BAM, BTX, Lory: distribution not stated; Sparse Upcycling's code: N(0, 0.02²)",
        "Sparse Upcycling's value; no bias",
    ),
    Entry(
        "FFN gate: order of softmax and top-k",
        lambda e: per_arm(e, lambda m: _router(get(m, "ffn_router"))),
        "stated",
        "BAM §3, Sparse Upcycling §4: softmax, then top-k, not renormalised; BTX §3: top-k, then "
        "softmax",
    ),
    Entry(
        "Attention gate",
        lambda e: per_arm(e, lambda m: _router(get(m, "attention_router"))),
        "stated",
        "BAM §4: softmax over all experts; Table 6 for top-k",
        "that top-k is softmax first, as in the published attention mixtures, is derived",
    ),
    Entry(
        "Initial shared keys and values (KV sharing)",
        lambda e: _kv(e),
        "derived",
        "BAM §4.1: not stated",
        "the paper's general rule: what is not an expert is the uniform mean of the dense models",
    ),
    Entry(
        "Everything that is not an expert or a router",
        lambda e: per_arm(e, _unrouted),
        "stated",
        "BAM §4; BTX §3; Sparse Upcycling: the seed model's own",
        "accumulated in float64",
    ),
    Entry(
        "Sparse Upcycling: layers that become mixtures",
        lambda e: per_arm(e, lambda m: get(m, "layers")),
        "stated",
        "Sparse Upcycling §4, App. B: every other layer from the second, for language",
        stated="every_other",
    ),
    Entry(
        "Sparse Upcycling: noise on copies, standard deviation",
        lambda e: per_arm(e, lambda m: get(m, "copy_noise_std")),
        "stated",
        "Sparse Upcycling: identical copies",
        stated="0.0",
    ),
    Entry(
        "Lory: segment length",
        lambda e: per_arm(e, lambda m: get(m, "segment_len")),
        "stated",
        "Lory §4.1: 256 of 4,096 tokens",
        stated="256",
    ),
    Entry(
        "Lory: routing of the first segment",
        lambda e: per_arm(e, lambda m: get(m, "first_segment")),
        "stated",
        "Lory §3, App. A: by its own mean, without gradient (`own_mean`): its tokens see later "
        "ones of the segment, in training and in scoring",
        stated="own_mean",
    ),
    Entry(
        "Lory: routing of held-out text",
        lambda e: per_arm(e, _held_out_routing),
        "ours",
        "Lory: once, from the prompt; again at every segment in its Tables 6 and 9",
        "held-out text has no prompt",
    ),
    Entry(
        "Soft MoE: slots of an expert, a sequence",
        lambda e: per_arm(e, lambda m: get(m, "slots_per_expert")),
        "ours",
        "Soft MoE §2.1: about as many slots in all as tokens; inputs and slot weights are not "
        "normalised again (§2.3)",
        "every slot mixes all tokens, later ones too, in training and in scoring",
    ),
    Entry(
        "Capacity factor of experts",
        lambda e: per_arm(e, lambda m: _capacity(get(m, "ffn_router"))),
        "ours",
        "BAM: not stated; BTX §4.3: 1.5 for Switch; Sparse Upcycling: 2 where experts choose",
        "dropping makes a token's output depend on its batch, so never outside training",
    ),
    Entry(
        "Held-out text where training samples or experts choose",
        lambda e: per_arm(e, lambda m: _held_out_choice(get(m, "ffn_router"))),
        "ours",
        "BTX §4.3: hard sampling at inference; Lory §4.1: tokens pick their experts",
        "a held-out loss should not change from one call to the next, nor see later tokens",
    ),
    Entry(
        "ReLU gates: target, coefficient of the L1 loss",
        lambda e: per_arm(e, lambda m: _sparsity(get(m, "ffn_router"))),
        "stated",
        "arXiv:2412.14711 §3.2: λ of one model, 1e-8 at first, times 1.2 to the sign of the gap to "
        "1 - k/E after each step; §3.3: gates weighted by loads",
        "the loads of one step and all devices; λ is kept above 0",
    ),
    Entry(
        "ReLU gates of an upcycled model at step 0",
        lambda e: per_arm(e, lambda m: _relu_start(m)),
        "ours",
        "arXiv:2412.14711: trained from scratch, not upcycled",
        "no factor: an FFN's output is the dense one times gates that the routers' initialisation "
        "makes small, and about half of the experts run until the L1 loss has closed them",
    ),
    Entry(
        "Hash tables",
        lambda e: per_arm(e, lambda m: _table(get(m, "ffn_router"))),
        "ours",
        "Hash Layers §3.1: the kinds; sizes of clusters and the embeddings read are not stated",
        "of equal numbers of tokens; the embeddings that the model starts from",
    ),
)


def _router(router: Any) -> Any:
    match router:
        case {"select": "all", "score": "relu"}:
            return "none: relu of the logits"
        case {"select": "all"}:
            return "softmax over all experts"
        case {"select": "top_k", "renormalize": renormalize, "top_k": top_k}:
            order = "top-k, then softmax" if renormalize else "softmax, then top-k"
            rate = router.get("bias_rate")
            bias = f", chosen with a bias that moves by {rate:g} a step" if rate else ""
            return f"{order}, k = {top_k}{bias}"
        case {"select": "sample", "estimator": estimator, "soft_first_layer": soft_first}:
            first = ", soft in the first layer" if soft_first else ""
            return f"Gumbel-softmax sample of one ({estimator}){first}"
        case {"select": "expert_choice", "group": group, "renormalize": renormalize}:
            sums = ", gates divided by their sum" if renormalize else ""
            return f"softmax, then each expert's top tokens of the {group}{sums}"
        case {"select": "hash", "kind": kind}:
            return f"1, by a {kind} hash of the token"
        case _:
            return ABSENT


def _capacity(router: Any) -> Any:
    match router:
        case {"select": "top_k", "capacity_factor": float(factor)}:
            return f"{factor:g}: more is dropped, in training alone"
        case {"select": "expert_choice", "capacity_factor": factor}:
            return f"{factor:g}, chosen by experts"
        case {"select": str()}:
            return "none: no token is dropped"
        case _:
            return ABSENT


def _held_out_choice(router: Any) -> Any:
    match router:
        case {"select": "sample"}:
            return "the likeliest expert, gate 1"
        case {"select": "expert_choice", "inference_top_k": top_k}:
            return f"each token's {top_k} likeliest"
        case _:
            return ABSENT


def _sparsity(router: Any) -> Any:
    match router:
        case {"score": "relu", "active_experts": active}:
            first, growth = router.get("l1_init", 1e-8), router.get("l1_growth", 1.2)
            return f"{active} open a token; {first:g}, times {growth:g}"
        case _:
            return ABSENT


def _relu_start(method: dict[str, Any]) -> Any:
    relu = _sparsity(get(method, "ffn_router")) is not ABSENT
    return "as drawn" if relu and method.get("start") != "scratch" else ABSENT


def _table(router: Any) -> Any:
    match router:
        case {"select": "hash", "kind": kind}:
            return f"{kind}, the same in every layer"
        case _:
            return ABSENT


def _unrouted(method: dict[str, Any]) -> Any:
    if method.get("start") == "scratch":
        return ABSENT if method["method"] == "dense" else "drawn anew"
    match method["method"]:
        case "dense" | "average" | "btm":
            return ABSENT
        case _ if method.get("num_experts") is not None:
            return "the seed model's, as it is"
        case _:
            return "uniform mean of the dense models"


def _held_out_routing(method: dict[str, Any]) -> Any:
    match method:
        case {"method": "lory", "routing": "prefix"}:
            return "once, from the first segment, as in training"
        case {"method": "lory" | "segment_moe"}:
            return "again at every segment, as in training"
        case {"method": "smear"}:
            return "once, by the mean of the whole text, later tokens too"
        case _:
            return ABSENT


def _kv(evidence: Evidence) -> str:
    shared = [shown(arm.name) for arm in evidence.arms if arm.method.get("kv") == "shared"]
    return f"mean of the dense models' ({', '.join(shared)})" if shared else ""
