"""Arms that cannot be: messages name the place where it is written and what is known there."""

import json

import pytest

from bam_lab.cost.match import solve
from bam_lab.errors import SpecError
from bam_lab.spec.load import load_ablation

SOFT = {"score": "softmax", "select": "all"}
TOP_2 = {"score": "softmax", "select": "top_k", "top_k": 2, "renormalize": False}
HUGE = {"code": 1e308, "law": 1e308}
SAMPLE = {
    "score": "softmax",
    "select": "sample",
    "estimator": "soft_value",
    "soft_first_layer": True,
}
BTX = {"method": "btx", "ffn_router": TOP_2}
BAM = {"method": "bam", "kv": "shared", "attention_router": SOFT, "ffn_router": TOP_2}
TO_SPARSE = {
    "method": "lory_to_sparse",
    "segment_len": 32,
    "first_segment": "uniform",
    "ffn_router": TOP_2,
}


def lora(*targets: str) -> dict[str, object]:
    return {"lora": {"rank": 4, "alpha": 8.0, "targets": list(targets)}}


def problems(**settings: object) -> str:
    """Return what is wrong with two arms, `arm` and a BTX arm `base` of other experts."""
    arms = {"base": BTX | {"experts": ["code", "law"]}} | settings.pop("arms", {})  # type: ignore[operator]
    texts = {"baseline": "base", "arms": arms, "claims": [], "common": {}} | settings
    texts["report"] = {"columns": ["heldout/*/perplexity"]}
    overrides = [f"{key}={json.dumps(value)}" for key, value in texts.items()]
    with pytest.raises(SpecError) as error:
        solve(load_ablation("bam-attention-routing", overrides=overrides))
    return str(error.value)


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        (BTX | {"ffn_router": SOFT | {"top_k": 2}}, "top_k must be a known key. Known: score, sel"),
        (BAM | {"attention_router": SOFT | {"top_k": 1}}, "a known key. Known: score, select."),
        (BTX | {"ffn_router": {"select": "all"}}, "arms.arm.ffn_router must name its 'score'"),
        (BTX | {"expert_layout": "split"}, "arms.arm.chunks must be given with expert_layout: spl"),
        ({"method": "btxx"}, "arms.arm.method must be a method, got 'btxx'. Did you mean `btx`?"),
        (BTX | {"experts": ["code"], "ffn_router": SOFT}, "experts must give two experts or more"),
        ({"method": "smear", "experts": ["code"]}, "experts must give two experts or more"),
        (BTX | {"branch": lora("attention")}, "branch must have ffn in lora.targets where FFNs"),
        (
            BAM | {"branch": lora("ffn"), "frozen_experts": True},
            "branch must have lora.targets of ffn and attention where experts are frozen, got ffn",
        ),
        (BTX | {"experts": ["code", "law"]}, "arms.arm must differ from arm 'base'"),
        (
            {"method": "average", "experts": ["code", "law"], "weights": HUGE},
            "weights must have a finite sum",
        ),
        ({"method": "average", "weights": {}}, "got none."),
        (BTX | {"ffn_router": SAMPLE | {"min_temperature": 1e-30}}, "min_temperature must be >="),
        (
            BTX | {"ffn_router": {"select": "hash", "kind": "random", "table_seed": 2**63}},
            "table_seed must be <",
        ),
        ({"method": "smear", "num_experts": 10**9}, "num_experts must be <= 4096"),
        (
            {"method": "sparse_upcycling", "num_experts": 4, "layers": "all", "ffn_router": TOP_2}
            | {"granularity": 10**12},
            "granularity must be <= 256",
        ),
        (
            TO_SPARSE | {"sparse_share": 1e-6},
            "arms.arm.sparse_share must leave each part more steps than warmup_steps",
        ),
    ],
)
def test_an_arm_that_cannot_be(arm: dict[str, object], message: str) -> None:
    assert message in problems(arms={"arm": arm})


def test_a_split_model_is_experts_enough() -> None:
    split = {"method": "btx", "ffn_router": TOP_2, "experts": ["code"], "expert_layout": "split"}
    assert "experts" not in problems(arms={"arm": split | {"chunks": 2, "kv": "shared"}}).split()[1]


@pytest.mark.parametrize(
    ("common", "arm", "message"),
    [
        ({"ffn_router": SOFT}, BTX, "common.ffn_router must have an effect: every arm"),
        ({"top_k": 3}, BTX, "common.top_k must be known to some arm. Known: balance_loss"),
        (
            {"experts": ["code", "lwa"]},
            {"method": "btx", "ffn_router": TOP_2},
            "common.experts.1 must be seed_model or a domain of the recipe, got 'lwa'",
        ),
    ],
)
def test_what_arms_have_in_common(
    common: dict[str, object], arm: dict[str, object], message: str
) -> None:
    assert message in problems(common=common, arms={"arm": arm})


def test_a_bad_name_of_an_arm_is_told_by_it() -> None:
    assert "arms.B must be lower-case letters" in problems(arms={"B": BTX})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"replicates": {"from": "seed", "count": 10**9}}, "replicates.count must be <= 1000"),
        ({"model.num_layers": 10**9}, "num_layers must be <= 1024"),
    ],
)
def test_counts_that_no_machine_could_list(settings: dict[str, object], message: str) -> None:
    assert message in problems(**settings)


def test_what_is_common_must_be_a_mapping() -> None:
    hashed = {"method": "btx", "balance_loss": None, "ffn_router": {"select": "hash"}}
    hashed["ffn_router"] |= {"kind": "random", "table_seed": 1}  # type: ignore[operator]
    assert "common must be a mapping, got 5" in problems(arms={"arm": hashed}, common=5)
