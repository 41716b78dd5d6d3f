"""How a router decides, and the losses that act on it.

Which models a router may serve: attention experts take `AttentionRouterSpec`, FFN experts all.
"""

from math import pi, sqrt
from typing import Annotated, Literal

from pydantic import Field

from bam_lab.spec.base import PositiveFloat, PositiveInt, Spec


class SoftRouter(Spec):
    """Send every token to every expert, weighted by a softmax over all (arXiv:2408.08274 §4)."""

    score: Literal["softmax"]
    select: Literal["all"]


class ReLURouter(Spec):
    """Send every token to the experts whose logit is positive, with that as gate (ReMoE).

    arXiv:2412.14711 §3: gates are relu(logits), so their number and their sum are the token's own;
    an expert whose gate is 0 does not run. The load-weighted L1 loss of §3.3 keeps them few and
    even; its coefficient, one for the model, is multiplied after each step by
    `l1_growth` ** sign(target - sparsity), both over all routed layers, the target being
    1 - `active_experts` / num_experts. The paper trains from scratch; upcycled, the sum of gates
    at step 0 is whatever `router_init_std` makes it, and about half of the experts run.

    Attributes:
        active_experts: how many experts a token is to have on average.
        l1_init: the coefficient at step 0.
        l1_growth: how fast it moves.
    """

    score: Literal["relu"]
    select: Literal["all"]
    active_experts: PositiveInt
    l1_init: PositiveFloat = 1e-8
    l1_growth: Annotated[float, Field(gt=1)] = 1.2


class TopKRouter(Spec):
    """Send every token to its `top_k` experts.

    Attributes:
        renormalize: False for softmax, then top-k (BAM, arXiv:2408.08274 §3); True for top-k, then
            softmax (BTX, arXiv:2403.07816 §3). With `top_k` 1, True is an error: the gate would be
            the constant 1 and give the router no gradient.
        capacity_factor: Switch's limit (arXiv:2101.03961 §2.2; 1.5 with top-1 in arXiv:2403.07816
            §4.3): of a training batch each expert takes at most ceil(capacity_factor * tokens /
            num_experts) (token, choice) pairs, row by row in order of position; the others are
            dropped: not computed, their gate 0. An even load needs `top_k` or more. Switch drops at
            inference too; here nothing is dropped there, since a generated token must not depend on
            its neighbours. None is no limit.
        bias_rate: Loss-free balancing (arXiv:2408.15664 §3; 0.001 there): a bias of each expert is
            added to the scores that choose, not to the gates; after each training step it moves by
            this much against the expert's load. None is no bias.
    """

    score: Literal["softmax"]
    select: Literal["top_k"]
    top_k: PositiveInt
    renormalize: bool
    capacity_factor: PositiveFloat | None = None
    bias_rate: PositiveFloat | None = None


class SampleRouter(Spec):
    """Send every token to one expert, sampled in training (arXiv:2403.07816 §4.3, Sample Top-1).

    In training the logits get Gumbel noise and a softmax at temperature max(`min_temperature`,
    exp(-`anneal_rate` * step)) (arXiv:1611.01144); the expert with the largest value runs. At
    inference there is no noise and the likeliest expert's gate is 1: the papers sample there too,
    but held-out losses and generated text should not change from one call to the next.

    Attributes:
        estimator: the gate in training. `soft_value`: the sample's largest value, the others zeroed
            (BTX). `straight_through`: 1, with the gradient of that value (arXiv:1611.01144 §2.2;
            experts that did not run give none).
        soft_first_layer: whether the first routed layer is soft instead (true in BTX).
    """

    score: Literal["softmax"]
    select: Literal["sample"]
    estimator: Literal["soft_value", "straight_through"]
    soft_first_layer: bool
    anneal_rate: PositiveFloat = 1e-4
    min_temperature: Annotated[float, Field(ge=1e-3)] = 0.5


class ExpertChoiceRouter(Spec):
    """Let every expert choose its tokens in training (arXiv:2202.09368; arXiv:2212.05055 §2.1).

    Each expert takes the ceil(capacity_factor * n / num_experts) tokens of a group of n whose
    softmax over experts gives it most; that probability is the gate. A token may have no expert or
    several. The choice sees later tokens, so at inference every token picks its `inference_top_k`
    likeliest experts instead (arXiv:2405.03133 §4.1).

    Attributes:
        renormalize: whether a token's gates are divided by their sum (the paper's choice for
            vision; a token without expert keeps 0).
        group: tokens that compete: the whole `batch`, as published (groups of 4,096 tokens, eight
            sequences, in arXiv:2212.05055's code), or each `sequence` for itself.
    """

    score: Literal["softmax"]
    select: Literal["expert_choice"]
    capacity_factor: PositiveFloat
    inference_top_k: PositiveInt
    renormalize: bool = False
    group: Literal["batch", "sequence"] = "batch"


class HashRouter(Spec):
    """Send every token to one expert by its id alone, with gate 1 (arXiv:2106.04426, Hash Layers).

    There is no router to train. The table from token to expert is made when the model is upcycled
    and stays in its checkpoint.

    Attributes:
        kind: `random`, uniform; `balanced`, most frequent token first, each to the expert with the
            least text so far; `clustered`, k-means over the embeddings that the model starts from,
            with equal numbers of tokens; `dispersed`, the members of each such cluster dealt out.
        table_seed: of the random table, and of where k-means starts. All layers have one table, as
            in the paper's code.
    """

    select: Literal["hash"]
    kind: Literal["random", "balanced", "clustered", "dispersed"]
    table_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0


AttentionRouterSpec = Annotated[SoftRouter | TopKRouter, Field(discriminator="select")]
_SelectAll = Annotated[SoftRouter | ReLURouter, Field(discriminator="score")]
RouterSpec = Annotated[
    _SelectAll | TopKRouter | SampleRouter | ExpertChoiceRouter | HashRouter,
    Field(discriminator="select"),
]


class BalanceLoss(Spec):
    """Push the load of a router's experts together.

    Attributes:
        form: `tokens` is E * sum_i f_i P_i with f_i the share of tokens sent to expert i
            (arXiv:2408.08274 §3); `gates` takes the mean of the selected gate values instead of
            f_i (arXiv:2403.07816 §3.3).
        weight: factor on the sum over layers.
        over: whose means these are (arXiv:2501.11873): each `sequence`'s, each group's of
            `micro_batch_sequences` rows, the loss averaged over them; or the `global_batch`'s, over
            all devices.
    """

    form: Literal["tokens", "gates"]
    weight: PositiveFloat
    over: Literal["sequence", "micro_batch", "global_batch"] = "global_batch"
    micro_batch_sequences: PositiveInt | None = None


def chooses_all(router: RouterSpec, num_experts: int) -> bool:
    """Return whether every token always goes to every expert."""
    match router:
        case SoftRouter():
            return True
        case TopKRouter():
            return router.top_k >= num_experts
        case _:
            return False


def is_balanced(router: RouterSpec) -> bool:
    """Return whether a balance loss is for the router.

    It moves no hash, nor experts that choose; ReLU gates have a loss of their own.
    """
    return not isinstance(router, HashRouter | ExpertChoiceRouter | ReLURouter)


def has_softmax(router: RouterSpec) -> bool:
    """Return whether the router's logits are of a softmax, which a z-loss keeps small."""
    return not isinstance(router, HashRouter | ReLURouter)


def layer_router(router: RouterSpec, is_first: bool) -> RouterSpec:
    """Return the router of one routed layer, which differs in the first where so asked."""
    if isinstance(router, SampleRouter) and router.soft_first_layer and is_first:
        return SoftRouter(score="softmax", select="all")
    return router


def predicted_gate_sum(router: RouterSpec, num_experts: int, logit_std: float = 0.0) -> float:
    """Return the sum of a token's gates under the inference rule, for near-uniform logits.

    Their standard deviation matters to ReLU gates alone: the mean of a relu of normal logits.
    """
    match router:
        case ReLURouter():
            return num_experts * logit_std / sqrt(2 * pi)
        case TopKRouter(renormalize=False):
            return router.top_k / num_experts
        case ExpertChoiceRouter(renormalize=False):
            return router.inference_top_k / num_experts
        case _:
            return 1.0
