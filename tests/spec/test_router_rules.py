"""Settings of routers and router losses that cannot work, or would have no effect."""

import json

import pytest

from bam_lab.errors import SpecError
from bam_lab.spec.load import load_ablation
from bam_lab.spec.mixtures import BTXMethod
from bam_lab.spec.routers import (
    BalanceLoss,
    ExpertChoiceRouter,
    HashRouter,
    ReLURouter,
    RouterSpec,
    SampleRouter,
    SoftRouter,
    TopKRouter,
    layer_router,
    predicted_gate_sum,
)

TOP_1 = {"score": "softmax", "select": "top_k", "top_k": 1, "renormalize": False}
SAMPLE = {
    "score": "softmax",
    "select": "sample",
    "estimator": "soft_value",
    "soft_first_layer": True,
}
CHOICE = {
    "score": "softmax",
    "select": "expert_choice",
    "capacity_factor": 2.0,
    "inference_top_k": 1,
}
HASH = {"select": "hash", "kind": "random"}
RELU = {"score": "relu", "select": "all", "active_experts": 1}
TOKENS = {"form": "tokens", "weight": 0.01}


def load(**arm: object) -> BTXMethod:
    """Load the shipped attention-routing ablation with another arm `btx`."""
    text = json.dumps({"method": "btx"} | arm)
    method = load_ablation("bam-attention-routing", overrides=[f"arms.btx={text}"]).arms["btx"]
    assert isinstance(method, BTXMethod)
    return method


NONE = {"balance_loss": None, "z_loss": 0.0}


@pytest.mark.parametrize(
    "arm",
    [
        {"ffn_router": TOP_1 | {"capacity_factor": 1.5}},
        {"ffn_router": SAMPLE},
        {"ffn_router": SAMPLE | {"estimator": "straight_through", "anneal_rate": 1e-5}},
        {"ffn_router": CHOICE} | {"balance_loss": None},
        {"ffn_router": HASH} | NONE,
        {"ffn_router": RELU | {"l1_init": 1e-6, "l1_growth": 1.5}} | NONE,
        {"ffn_router": TOP_1, "shared_expert": True},
        {"ffn_router": HASH | {"table_seed": 3}} | NONE,
        {"ffn_router": TOP_1, "balance_loss": TOKENS | {"over": "sequence"}},
        {
            "ffn_router": TOP_1,
            "balance_loss": TOKENS | {"over": "micro_batch", "micro_batch_sequences": 8},
        },
    ],
)
def test_what_can_be_said(arm: dict[str, object]) -> None:
    assert load(**arm).ffn_router.select == arm["ffn_router"]["select"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        ({"ffn_router": TOP_1 | {"top_k": 5}}, "top_k must be at most the number of experts 4"),
        (
            {"ffn_router": TOP_1 | {"top_k": 4, "bias_rate": 0.001}},
            "bias_rate must not be given where every token goes to every expert",
        ),
        ({"ffn_router": TOP_1 | {"renormalize": True}}, "renormalize must be false with top_k 1"),
        (
            {"ffn_router": TOP_1 | {"capacity_factor": 4.0}},
            "capacity_factor must be below the number of experts 4, got 4: nothing could be",
        ),
        (
            {"ffn_router": CHOICE | {"capacity_factor": 4.0}} | NONE,
            "capacity_factor must be below the number of experts 4, got 4: every expert",
        ),
        (
            {"ffn_router": CHOICE | {"inference_top_k": 9}} | NONE,
            "inference_top_k must be at most the number of experts 4, got 9",
        ),
        (
            {"ffn_router": CHOICE, "balance_loss": TOKENS},
            "balance_loss must be null where experts choose, got tokens: it has no effect",
        ),
        (
            {"ffn_router": SAMPLE | {"min_temperature": 1.0}},
            "min_temperature must be below 1",
        ),
        (
            {"ffn_router": HASH, "balance_loss": TOKENS},
            "balance_loss must be null where a hash has no router",
        ),
        ({"ffn_router": HASH, "balance_loss": None, "z_loss": 0.1}, "z_loss must be 0 where"),
        ({"ffn_router": RELU, "z_loss": 0.1}, "z_loss must be 0 with score: relu"),
        (
            {"ffn_router": RELU, "balance_loss": TOKENS},
            "balance_loss must be null where gates have their own load-weighted L1 loss",
        ),
        (
            {"ffn_router": RELU | {"active_experts": 4}},
            "active_experts must be below the number of experts 4, got 4: no gate",
        ),
        (
            {"ffn_router": HASH, "router_init_std": 0.1} | NONE,
            "router_init_std must not be given where a hash routes",
        ),
        (
            {"ffn_router": {"select": "hash", "kind": "balanced", "table_seed": 1}} | NONE,
            "table_seed must not be given with kind: balanced",
        ),
        (
            {"ffn_router": TOP_1, "balance_loss": TOKENS | {"over": "micro_batch"}},
            "micro_batch_sequences must be given with over: micro_batch, and only there, got None",
        ),
        (
            {"ffn_router": TOP_1, "balance_loss": TOKENS | {"micro_batch_sequences": 4}},
            "and only there, got 4 with global_batch",
        ),
        (
            {
                "ffn_router": TOP_1,
                "balance_loss": TOKENS | {"over": "micro_batch", "micro_batch_sequences": 1},
            },
            "must be 2 or more, got 1. Set over: sequence",
        ),
        *(
            (
                {
                    "ffn_router": TOP_1,
                    "balance_loss": TOKENS | {"over": "micro_batch", "micro_batch_sequences": rows},
                },
                f"must divide batch_sequences 32 of the mixture phase and be less, got {rows}",
            )
            for rows in (5, 32)
        ),
    ],
)
def test_what_makes_no_sense_is_told_at_its_place(arm: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError) as error:
        load(**arm)
    assert message in str(error.value)
    assert "arms.btx." in str(error.value) and "(arm 'btx')" in str(error.value)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "arms.top-1.attention_router.capacity_factor=1.5",
            "attention_router must have no capacity_factor: attention experts",
        ),
        (
            "arms.top-1.attention_router.bias_rate=0.001",
            "attention_router must have no bias_rate: attention experts",
        ),
        (f"arms.soft.attention_router={HASH}".replace("'", ""), "attention_router"),
    ],
)
def test_attention_experts_are_soft_or_top_k(setting: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        load_ablation("bam-attention-routing", overrides=[setting])
    assert message in str(error.value)


def test_segments_have_no_bias() -> None:
    arm = {
        "method": "segment_moe",
        "segment_len": 64,
        "first_segment": "own_mean",
        "ffn_router": TOP_1 | {"bias_rate": 0.001},
    }
    with pytest.raises(SpecError, match="ffn_router must have no bias_rate with method: segment"):
        load_ablation("bam-attention-routing", overrides=[f"arms.top-2={json.dumps(arm)}"])


def test_a_clustered_hash_needs_a_trained_embedding() -> None:
    arm = {
        "method": "sparse_upcycling",
        "num_experts": 4,
        "layers": "all",
        "start": "scratch",
        "ffn_router": {"select": "hash", "kind": "dispersed"},
    } | NONE
    text = json.dumps(arm)
    with pytest.raises(SpecError, match=r"ffn_router\.kind must be random or balanced from"):
        load_ablation("bam-attention-routing", overrides=[f"arms.top-2={text}"])


def test_one_routed_layer_must_sample() -> None:
    arm = {
        "method": "sparse_upcycling",
        "num_experts": 4,
        "layers": "last_1",
        "ffn_router": SAMPLE,
    }
    text = json.dumps(arm)
    with pytest.raises(SpecError, match="must have soft_first_layer: false where one layer"):
        load_ablation("bam-attention-routing", overrides=[f"arms.top-2={text}"])


def test_a_balance_loss_of_today_is_hashed_as_before() -> None:
    dumped = BalanceLoss(form="tokens", weight=0.01).model_dump(exclude_defaults=True)
    assert dumped == {"form": "tokens", "weight": 0.01}
    assert TopKRouter.model_validate(TOP_1).model_dump(exclude_defaults=True) == TOP_1


@pytest.mark.parametrize(
    ("router", "wanted"),
    [
        (SoftRouter(score="softmax", select="all"), 1.0),
        (TopKRouter.model_validate(TOP_1 | {"capacity_factor": 1.5}), 0.25),
        (TopKRouter.model_validate(TOP_1 | {"top_k": 2, "renormalize": True}), 1.0),
        (SampleRouter.model_validate(SAMPLE), 1.0),
        (ExpertChoiceRouter.model_validate(CHOICE | {"inference_top_k": 2}), 0.5),
        (ExpertChoiceRouter.model_validate(CHOICE | {"renormalize": True}), 1.0),
        (HashRouter.model_validate(HASH), 1.0),
        (ReLURouter.model_validate(RELU), 0.0),
    ],
)
def test_predicted_gate_sums(router: RouterSpec, wanted: float) -> None:
    assert predicted_gate_sum(router, 4) == wanted


@pytest.mark.parametrize(
    ("router", "message"),
    [
        (RELU | {"l1_growth": 1.0}, "ffn_router.l1_growth must be > 1.0, got 1.0"),
        (RELU | {"top_k": 1}, "ffn_router.top_k must be a known key"),
        (RELU | {"score": "tanh"}, "ffn_router must have a score of 'softmax', 'relu', got 'tanh'"),
        ({"select": "all"}, "ffn_router must name its 'score'. Add it."),
    ],
)
def test_a_router_of_all_is_told_by_its_score(router: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError) as error:
        load(ffn_router=router)
    assert message in str(error.value)


def test_attention_has_no_relu_gates() -> None:
    setting = f"arms.soft.attention_router={json.dumps(RELU)}"
    with pytest.raises(SpecError, match=r"attention_router.*score"):
        load_ablation("bam-attention-routing", overrides=[setting])


def test_copies_in_parts_have_no_relu_gates() -> None:
    arm = {"method": "sparse_upcycling", "num_experts": 2, "layers": "all", "granularity": 2}
    text = json.dumps(arm | {"ffn_router": RELU, "balance_loss": None})
    with pytest.raises(SpecError, match="granularity must be 1 with score: relu, got 2"):
        load_ablation("bam-attention-routing", overrides=[f"arms.top-2={text}"])


def test_the_first_layer_alone_may_be_soft() -> None:
    router = SampleRouter.model_validate(SAMPLE)
    assert isinstance(layer_router(router, is_first=True), SoftRouter)
    assert layer_router(router, is_first=False) == router
    plain = SampleRouter.model_validate(SAMPLE | {"soft_first_layer": False})
    assert layer_router(plain, is_first=True) == plain
