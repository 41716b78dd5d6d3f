"""The conformance list: every routing x keys and values x block that must keep the laws."""

import itertools

import torch

from bam_lab.model.context import Context
from bam_lab.model.layers import rope_tables
from bam_lab.model.transformer import Transformer, initialise
from bam_lab.spec.experts import copies_seed, num_sources
from bam_lab.spec.laws import broken_identities
from bam_lab.spec.methods import (
    BAMMethod,
    BTXMethod,
    DenseMethod,
    LoryMethod,
    MethodSpec,
    SegmentMoEMethod,
    SMEARMethod,
    SoftMoEMethod,
    SparseUpcyclingMethod,
    TokenMergingMethod,
)
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.routers import (
    BalanceLoss,
    ExpertChoiceRouter,
    HashRouter,
    ReLURouter,
    RouterSpec,
    SampleRouter,
    SoftRouter,
    TopKRouter,
    predicted_gate_sum,
)

EXPERTS = 4
DENSE = DenseMethod(method="dense")
SOFT = SoftRouter(score="softmax", select="all")


def top_k(k: int, renormalize: bool = False, **settings) -> TopKRouter:
    return TopKRouter(score="softmax", select="top_k", top_k=k, renormalize=renormalize, **settings)


ROUTERS: dict[str, RouterSpec] = {
    "soft": SOFT,
    "top-1": top_k(1),
    "top-2": top_k(2),
    "top-2-renormalized": top_k(2, renormalize=True),
}


def expert_choice(capacity_factor=2.0, inference_top_k=2, **settings) -> ExpertChoiceRouter:
    return ExpertChoiceRouter(
        score="softmax",
        select="expert_choice",
        capacity_factor=capacity_factor,
        inference_top_k=inference_top_k,
        **settings,
    )


def sample(estimator="soft_value", soft_first_layer=False, **settings) -> SampleRouter:
    return SampleRouter(
        score="softmax",
        select="sample",
        estimator=estimator,
        soft_first_layer=soft_first_layer,
        **settings,
    )


def relu(active_experts=1, **settings) -> ReLURouter:
    return ReLURouter(score="relu", select="all", active_experts=active_experts, **settings)


FFN_ROUTERS: dict[str, RouterSpec] = {
    "top-1-capacity": top_k(1, capacity_factor=1.0),
    "top-2-renormalized-capacity": top_k(2, renormalize=True, capacity_factor=2.0),
    "top-2-bias": top_k(2, bias_rate=0.001),
    "sample": sample(),
    "sample-soft-first": sample(soft_first_layer=True),
    "straight-through": sample("straight_through"),
    "expert-choice": expert_choice(),
    "expert-choice-sequence": expert_choice(1.0, 1, group="sequence"),
    "expert-choice-renormalized": expert_choice(renormalize=True, group="sequence"),
    "hash-random": HashRouter(select="hash", kind="random"),
    "hash-balanced": HashRouter(select="hash", kind="balanced"),
    "hash-clustered": HashRouter(select="hash", kind="clustered"),
    "hash-dispersed": HashRouter(select="hash", kind="dispersed"),
    "relu": relu(),
}
"""Those that attention has not; what they limit, draw or choose is in the training rule alone."""


def btx(ffn: RouterSpec, **settings) -> BTXMethod:
    return BTXMethod(method="btx", ffn_router=ffn, **settings)


def bam(kv, attention: RouterSpec, ffn: RouterSpec = ROUTERS["top-1"], **settings) -> BAMMethod:
    return BAMMethod(method="bam", kv=kv, attention_router=attention, ffn_router=ffn, **settings)


def sparse_upcycling(layers, ffn: RouterSpec = ROUTERS["top-2"], **settings):
    settings = {"num_experts": EXPERTS} | settings
    return SparseUpcyclingMethod(
        method="sparse_upcycling", layers=layers, ffn_router=ffn, **settings
    )


METHODS: dict[str, MethodSpec] = {f"btx-{name}": btx(router) for name, router in ROUTERS.items()}
METHODS |= {
    f"bam-{kv}-{name}": bam(kv, router)
    for kv, (name, router) in itertools.product(("shared", "per_expert"), ROUTERS.items())
}
METHODS["bam-shared-soft-ffn-top-2-renormalized"] = bam("shared", SOFT, top_k(2, True))
METHODS |= {
    f"sparse_upcycling-{layers}-{name}": sparse_upcycling(layers, ROUTERS[name])
    for layers, name in (
        ("all", "top-2"),
        ("every_other", "top-2"),
        ("every_other", "top-2-renormalized"),
        ("last_1", "soft"),
    )
}

METHODS |= {f"btx-{name}": btx(router) for name, router in FFN_ROUTERS.items()}
METHODS["bam-shared-soft-ffn-hash-random"] = bam("shared", SOFT, FFN_ROUTERS["hash-random"])
METHODS["bam-per_expert-top-2-ffn-sample-soft-first"] = bam(
    "per_expert", top_k(2), FFN_ROUTERS["sample-soft-first"]
)
METHODS |= {
    f"bam-{kv}-{name}-balanced": bam(
        kv, ROUTERS[name], attention_balance_loss=BalanceLoss(form=form, weight=0.01)
    )
    for kv, name, form in (("shared", "soft", "gates"), ("per_expert", "top-2", "tokens"))
}
METHODS["sparse_upcycling-every_other-expert-choice"] = sparse_upcycling(
    "every_other", FFN_ROUTERS["expert-choice"]
)


def lory(first_segment, **settings):
    return LoryMethod(method="lory", segment_len=SEGMENT, first_segment=first_segment, **settings)


SEGMENT = 10
METHODS |= {f"lory-{first}": lory(first) for first in ("own_mean", "uniform")}
METHODS |= {
    "btx-split-soft": btx(SOFT, expert_layout="split", chunks=2),
    "btx-split-top-2-renormalized": btx(top_k(2, True), expert_layout="split", chunks=2),
    "btx-blended-top-2-renormalized": btx(top_k(2, True), expert_layout="blended"),
    "btx-frozen-soft": btx(SOFT, frozen_experts=True),
    "btx-frozen-top-2": btx(top_k(2), frozen_experts=True),
    "bam-shared-frozen-soft": bam("shared", SOFT, frozen_experts=True),
    "bam-shared-frozen-top-2": bam("shared", top_k(2), frozen_experts=True),
    "bam-per_expert-frozen-top-1": bam("per_expert", top_k(1), frozen_experts=True),
    "sparse_upcycling-scratch-top-2": sparse_upcycling("every_other", start="scratch"),
    "sparse_upcycling-drop-top-2-renormalized": sparse_upcycling(
        "all", top_k(2, True), reinit_share=0.5
    ),
    "sparse_upcycling-fine-soft": sparse_upcycling("all", SOFT, num_experts=2, granularity=2),
    "sparse_upcycling-fine-top-2-renormalized": sparse_upcycling(
        "every_other", top_k(2, True), num_experts=2, granularity=2
    ),
    "sparse_upcycling-partly-top-2": sparse_upcycling("every_other", copied_experts=2),
    "lory-scratch-uniform": lory("uniform", num_experts=EXPERTS, start="scratch"),
    "bam-shared-soft-ffn-relu": bam("shared", SOFT, relu(2)),
    "sparse_upcycling-every_other-relu": sparse_upcycling("every_other", relu(2)),
    "btx-shared-soft": btx(SOFT, shared_expert=True),
    "btx-shared-top-2-renormalized": btx(top_k(2, True), shared_expert=True),
    "btx-shared-relu": btx(relu(), shared_expert=True),
    "btx-shared-frozen-split-top-2": btx(
        top_k(2), shared_expert=True, frozen_experts=True, expert_layout="split", chunks=2
    ),
    "btx-shared-blended-expert-choice": btx(
        expert_choice(), shared_expert=True, expert_layout="blended"
    ),
    "sparse_upcycling-shared-top-2": sparse_upcycling("every_other", shared_expert=True),
    "sparse_upcycling-shared-fine-top-2-renormalized": sparse_upcycling(
        "all", top_k(2, True), num_experts=2, granularity=2, shared_expert=True
    ),
    "sparse_upcycling-shared-scratch-top-2": sparse_upcycling(
        "every_other", shared_expert=True, start="scratch"
    ),
}


def segment_moe(first_segment, router, **settings):
    return SegmentMoEMethod(
        method="segment_moe",
        segment_len=SEGMENT,
        first_segment=first_segment,
        ffn_router=router,
        **settings,
    )


METHODS |= {
    "lory-bos": lory("bos"),
    "lory-prefix-own_mean": lory("own_mean", routing="prefix"),
    "lory-prefix-bos": lory("bos", routing="prefix"),
    "lory-copies-bos": lory("bos", num_experts=EXPERTS),
    "segment_moe-own_mean-top-1": segment_moe("own_mean", top_k(1)),
    "segment_moe-bos-top-2-renormalized": segment_moe("bos", top_k(2, True)),
    "segment_moe-own_mean-expert_choice": segment_moe("own_mean", expert_choice(1.0, 1)),
    "segment_moe-scratch-bos-top-2": segment_moe(
        "bos", top_k(2), num_experts=EXPERTS, start="scratch"
    ),
    "token_merging": TokenMergingMethod(method="token_merging"),
    "token_merging-copies": TokenMergingMethod(method="token_merging", num_experts=EXPERTS),
    "smear": SMEARMethod(method="smear"),
    "smear-copies": SMEARMethod(method="smear", num_experts=EXPERTS),
    "soft_moe": SoftMoEMethod(method="soft_moe", slots_per_expert=3),
    "soft_moe-copies": SoftMoEMethod(method="soft_moe", slots_per_expert=3, num_experts=EXPERTS),
}
BLOCKS = ("parallel", "serial")
SHAPES = {block: {"block": block} for block in BLOCKS} | {
    "learned": {"block": "parallel", "positions": "learned"},
    "layer-norm": {"block": "serial", "norm": "layer"},
    "gelu": {"block": "parallel", "norm": "layer", "activation": "gelu"},  # GPT-J's
}
CASES = list(itertools.product(METHODS, BLOCKS))
OF_POSITIONS = ("btx-top-1", "bam-per_expert-top-2", "sparse_upcycling-scratch-top-2")
OF_POSITIONS += ("lory-own_mean", "lory-bos", "lory-uniform", "segment_moe-bos-top-2-renormalized")
CASES += [(name, "learned") for name in OF_POSITIONS]
CASES += [("bam-shared-soft", "layer-norm")]
OF_EXPERTS = [case for case in CASES if num_sources(METHODS[case[0]], EXPERTS) > 1]
"""The cases that are made of dense experts, which can differ."""
OF_MODELS = [case for case in CASES if num_sources(METHODS[case[0]], EXPERTS) > 0]
"""The cases that do not start from scratch."""
OF_COPIES = [case for case in CASES if copies_seed(METHODS[case[0]])]


def keeps_scale(method: MethodSpec) -> bool:
    """Return whether all gates of the method sum to 1, under the inference rule."""
    if not hasattr(method, "ffn_router"):
        return True  # a softmax over all experts
    routers = [method.ffn_router]
    if isinstance(method, BAMMethod):
        routers.append(method.attention_router)
    return all(predicted_gate_sum(router, EXPERTS) == 1 for router in routers)


def draws_noise(method: MethodSpec) -> bool:
    """Return whether a training pass depends on its generator."""
    return isinstance(getattr(method, "ffn_router", None), SampleRouter)


def keeps_copies(method: MethodSpec) -> bool:
    """Return whether a mixture of equal models is that model.

    Where an expert is a part of a model, those that a token does not choose are missing; the parts
    of a copy are chosen together, as long as its router's rows are alike.
    """
    drawn = getattr(method, "reinit_share", 0) or getattr(method, "copied_experts", None)
    whole = getattr(method, "expert_layout", "whole") == "whole"
    known = "copies" in broken_identities(method)
    return keeps_scale(method) and whole and not drawn and not known


def shape(block: str = "parallel", **changes) -> ModelSpec:
    """Return a small shape: more tokens than a block of attention, two query heads a key head."""
    sizes = {
        "vocab_size": 61,
        "dim": 16,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "ffn_dim": 24,
        "max_seq_len": 150,
        "tie_embeddings": False,
        "init_std": 0.2,  # large, so that a broken law moves the logits
    }
    return ModelSpec(schema=1, **(sizes | SHAPES[block] | changes))


def model_of(method: MethodSpec, block: str = "parallel", seed: int = 0, **changes) -> Transformer:
    """Return a random model; its experts all differ and its routers have opinions."""
    if not isinstance(method, DenseMethod):
        method = method.model_copy(update={"router_init_std": 0.5})
    num_experts = 1 if isinstance(method, DenseMethod) else EXPERTS
    model = Transformer(shape(block, **changes), method, num_experts)
    return initialise(model, torch.Generator().manual_seed(seed))


def text(rows: int = 3, length: int = 100, seed: int = 1) -> torch.Tensor:
    return torch.randint(61, (rows, length), generator=torch.Generator().manual_seed(seed))


def context_of(length: int, head_dim: int = 8) -> Context:
    """Return what a module of `shape()` needs beside its input, by the inference rule."""
    return Context(rope_tables(length, head_dim, 10000.0), torch.zeros(1, length, dtype=torch.long))
