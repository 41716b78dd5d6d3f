"""Mixtures whose FFN router sends tokens to experts: BTX, BAM, Sparse Upcycling.

The defaults are the papers' (section named beside each); a value that a paper leaves open is in
the assumption register (`report/assumptions.py`).

A shared expert (arXiv:2401.06066 §3.2) is one SwiGLU of the model's ffn_dim, however wide the
routed experts are. Every token of a routed layer goes through it, and it is added with weight 1,
without a gate. It begins as the mean of the dense experts' FFNs, as the seed model's FFN beside
copies, or drawn anew from scratch. A dense FFN would then count twice at step 0, so the `down` of
the shared expert and of every routed one are halved, as arXiv:2410.07524 §2.3 scales the weights of
fine-grained copies (for a shared expert it is ours: DeepSeekMoE trains from scratch). If all
experts are equal, the sum is (1 + the token's sum of gates) / 2 times the dense FFN: that FFN
itself where gates sum to 1. From scratch nothing is halved.
"""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from bam_lab.spec.base import NonNegativeFloat, PositiveFloat, PositiveInt, Share, Spec
from bam_lab.spec.branches import BranchSpec
from bam_lab.spec.routers import AttentionRouterSpec, BalanceLoss, RouterSpec


class _MixtureMethod(Spec):
    """Hold what every mixture of dense experts has.

    Attributes:
        experts: names of the dense models that become experts, in router-column order; `seed_model`
            is the seed model. A name may stand more than once: each time it is one more copy. Empty
            means the recipe's own list.
        branch: how the dense experts are trained; absent for full branches of the recipe.
        router_init_std: standard deviation of the routers' normal initialisation.
    """

    ffn_router: RouterSpec
    experts: tuple[str, ...] = ()
    branch: BranchSpec | None = None
    z_loss: NonNegativeFloat = 0.0
    router_init_std: PositiveFloat = 0.02


def _layer_choice(value: str) -> str:
    if not re.fullmatch(r"all|every_other|last_[1-9][0-9]*", value):
        raise ValueError("all, every_other or last_<n>, such as last_6")
    return value


LayerChoice = Annotated[str, AfterValidator(_layer_choice)]
NumExperts = Annotated[int, Field(ge=2, le=4096)]


Start = Literal["seed_model", "scratch"]
"""What copies are made of; `scratch` reads no dense model and draws every weight anew."""


class BTXMethod(_MixtureMethod):
    """Mix FFN experts; merge everything else by the mean (arXiv:2403.07816 §3).

    Attributes:
        expert_layout: `whole` FFNs; `split`, each cut into `chunks` experts of ffn_dim / chunks, so
            that N models give N * chunks; `blended`, expert n of N the union of the n-th of N parts
            of every model's FFN (§4.3).
        chunks: parts of each FFN; for `split` alone.
        frozen_experts: whether the experts keep the weights of the dense models, and all else
            trains.
        shared_expert: whether an FFN that trains stands beside the routed experts, as above.
    """

    method: Literal["btx"]
    expert_layout: Literal["whole", "split", "blended"] = "whole"
    chunks: NumExperts | None = None
    frozen_experts: bool = False
    shared_expert: bool = False
    balance_loss: BalanceLoss | None = BalanceLoss(form="gates", weight=0.01)


class BAMMethod(_MixtureMethod):
    """Mix FFN and attention experts; merge everything else by the mean (arXiv:2408.08274 §4).

    Attributes:
        kv: `per_expert` (KV experts: own W_k, W_v) or `shared` (KV sharing: one averaged pair).
        attention_balance_loss: the attention router's own balance loss; None in the paper.
        frozen_experts: whether FFN and attention experts keep the weights of the dense models, and
            all else trains.
    """

    method: Literal["bam"]
    kv: Literal["per_expert", "shared"]
    attention_router: AttentionRouterSpec
    balance_loss: BalanceLoss | None = BalanceLoss(form="tokens", weight=0.01)
    attention_balance_loss: BalanceLoss | None = None
    frozen_experts: bool = False
    z_loss: NonNegativeFloat = 0.001


class SparseUpcyclingMethod(Spec):
    """Copy the seed model's FFN into every expert of some layers (arXiv:2212.05055 §4).

    Attributes:
        layers: which layers become mixtures, the others stay dense: `all`; `every_other`, from the
            second on (the paper's for language); `last_<n>` (its choice for vision, App. B.4).
        start: `seed_model`, or `scratch` for the same mixture from a random initialisation.
        copy_noise_std: standard deviation of normal noise on each copy; 0 makes them identical.
        reinit_share: share of each copy's hidden channels that is drawn anew, each copy's own, from
            the statistics of the weights it replaces (arXiv:2502.19261 §3; 0.5 and 1.0 there).
        granularity: into how many experts each copy is cut, so that there are num_experts *
            granularity of ffn_dim / granularity. The parts of a copy share their router row at the
            start, so that they are chosen together (arXiv:2410.07524 §2.3, virtual groups), and
            their down projections are multiplied by granularity.
        copied_experts: how many experts are copies, the rest drawn anew (App. B.5); None for all.
        shared_expert: whether an FFN stands beside the routed experts, as above: a whole copy,
            without noise.
        router_init_std: standard deviation of the routers' normal initialisation.
    """

    method: Literal["sparse_upcycling"]
    num_experts: NumExperts
    layers: LayerChoice
    ffn_router: RouterSpec
    start: Start = "seed_model"
    copy_noise_std: NonNegativeFloat = 0.0
    reinit_share: Share = 0.0
    granularity: Annotated[int, Field(gt=0, le=256)] = 1
    copied_experts: PositiveInt | None = None
    shared_expert: bool = False
    balance_loss: BalanceLoss | None = BalanceLoss(form="tokens", weight=0.01)
    z_loss: NonNegativeFloat = 0.0
    router_init_std: PositiveFloat = 0.02
