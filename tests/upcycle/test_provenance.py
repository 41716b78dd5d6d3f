"""How far experts moved from their seed model, and that unrelated models are not mixed unasked."""

import json
import math

import pytest
import torch

from bam_lab.errors import CheckpointError
from bam_lab.methods import BAM, BTX, Dense
from bam_lab.upcycle.provenance import UNRELATED, check_related, moved, provenance
from tests.model.cases import DENSE, model_of, shape


def state(seed=0):
    return model_of(DENSE, seed=seed).state_dict()


def scaled(model, factor, part=""):
    return {name: t * factor if part in name and t.ndim > 1 else t for name, t in model.items()}


def test_a_model_has_not_moved_from_itself():
    for measured in provenance(state(), state()).values():
        assert measured["distance"] == 0.0
        assert measured["cosine"] == pytest.approx(1.0)


def test_distance_and_cosine_by_hand():
    """A longer vector is as far away as it is longer, and points the same way."""
    found = provenance(state(), scaled(state(), 1.5))
    assert set(found) == {"all", "embeddings", "attention", "ffn"}
    for measured in found.values():
        assert measured["distance"] == pytest.approx(0.5, rel=1e-5)
        assert measured["cosine"] == pytest.approx(1.0)
    turned = provenance(state(), scaled(state(), -1.0))["all"]
    assert (turned["distance"], turned["cosine"]) == pytest.approx((2.0, -1.0))


@pytest.mark.parametrize(
    ("part", "group"), [("ffn", "ffn"), ("attention", "attention"), ("lm_head", "embeddings")]
)
def test_groups_are_measured_apart(part, group):
    found = provenance(state(), scaled(state(), 2.0, part))
    changed = {name for name, measured in found.items() if measured["distance"] > 0}
    assert changed == {"all", group}


def test_norms_do_not_count():
    one = state()
    other = {name: t * 100 if t.ndim == 1 else t for name, t in one.items()}
    assert provenance(one, other) == provenance(one, one)


def test_unrelated_models_are_near_a_cosine_of_0():
    """Far below the limit, which lies far below branches that moved as far as they are long."""
    seed_model = state()
    for seed in (1, 2, 3):
        measured = provenance(seed_model, state(seed))["all"]
        assert abs(measured["cosine"]) < UNRELATED / 2
        assert measured["distance"] == pytest.approx(math.sqrt(2), rel=0.05)
        branch = {name: t + state(seed)[name] for name, t in seed_model.items()}
        assert provenance(seed_model, branch)["all"]["cosine"] > 5 * UNRELATED


def test_the_receipt_compares_with_the_seed_model_wherever_it_stands():
    seed_model = state()
    code, law = ({n: t + 0.5 * state(i)[n] for n, t in seed_model.items()} for i in (1, 2))
    facts = moved(["code", "seed_model", "law"], [code, seed_model, law])
    json.dumps(facts, allow_nan=False)
    assert facts["compared_with"] == "seed_model"
    distances = {name: round(m["all"]["distance"], 1) for name, m in facts["models"].items()}
    assert distances == {"code": 0.5, "seed_model": 0.0, "law": 0.5}
    facts = moved(["law", "code"], [law, code])
    assert facts["compared_with"] == "law"
    assert facts["models"]["code"]["all"]["cosine"] == pytest.approx(0.8, abs=0.02)


def test_an_unrelated_model_is_named_with_what_was_measured():
    with pytest.raises(CheckpointError) as error:
        check_related(["a", "b", "c"], [state(), state(), state(1)])
    for part in (
        "c must share its seed model with a, with which it is mixed",
        "at a cosine of ",
        "and a distance of 1.4",
        "say allow_unrelated=True",
    ):
        assert part in str(error.value)


def test_weights_of_0_are_related_to_nothing():
    nothing = {name: torch.zeros_like(t) for name, t in state().items()}
    for models in ([state(), nothing], [nothing, state()]):
        with pytest.raises(CheckpointError, match="must share its seed model"):
            check_related(["a", "b"], models)


def test_unrelated_models_are_mixed_only_when_asked():
    experts = [Dense.from_scratch(shape(), rng_seed=i) for i in range(2)]
    with pytest.raises(CheckpointError, match="expert 1 must share its seed model with expert 0"):
        BTX.from_experts(experts)
    with pytest.raises(CheckpointError, match="expert 1 must share its seed model"):
        BAM.from_experts(experts, kv="shared")
    assert BTX.from_experts(experts, allow_unrelated=True).model.num_experts == 2
    assert BAM.from_experts(experts, kv="shared", allow_unrelated=True).model.num_experts == 2
