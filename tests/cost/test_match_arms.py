"""Budgets of arms that are not one mixture phase from dense experts, and sizes by name."""

import dataclasses

import pytest

from bam_lab.cost.flops import per_token
from bam_lab.cost.match import (
    TOLERANCE,
    branches,
    expert_budget,
    phase_of,
    seed_budget,
    settled,
    solve,
)
from bam_lab.cost.params import count, dense_ffn_dim
from bam_lab.errors import SpecError
from bam_lab.spec.ablation import Match
from bam_lab.spec.branches import BranchSpec, LoRASpec
from bam_lab.spec.dense import AverageMethod, BTMMethod, DenseMethod, SizeOf
from bam_lab.spec.methods import LoryToSparseMethod
from tests.cost.shapes import BTX, DENSE, KV_EXPERTS, KV_SHARING, LARGE, SMALL, SPARSE, TOP_2
from tests.cost.test_match import resolved

SCRATCH = DenseMethod(method="dense", start="scratch")
AVERAGE = AverageMethod(method="average")
TO_SPARSE = LoryToSparseMethod(
    method="lory_to_sparse", segment_len=16, first_segment="uniform", ffn_router=TOP_2
)
LORA = LoRASpec(rank=4, alpha=8.0, targets=("ffn", "attention"))


def with_arms(match, **arms):
    found = resolved(match)
    return dataclasses.replace(found, arms={"btx": found.arms["btx"], **arms})


def test_a_model_from_scratch_spends_the_whole_lineage_in_its_own_training():
    found = with_arms(Match(on="flops", phase="all"), scratch=SCRATCH)
    scratch, btx = solve(found)["scratch"], solve(found)["btx"]
    assert scratch.lineage_flops == scratch.training_flops
    assert scratch.training_flops == pytest.approx(btx.lineage_flops, rel=TOLERANCE)
    assert scratch.matched and branches(found, "scratch") == ()
    size = phase_of(found, SCRATCH)
    assert size.peak_lr == found.scale.phases.seed_model.peak_lr
    assert phase_of(found, DENSE) == found.scale.phases.mixture


@pytest.mark.parametrize("phase", ["mixture", "all"])
def test_an_arm_without_training_spends_nothing_and_is_not_matched(phase):
    btm = BTMMethod(method="btm", top_k=1, experts=("code", "law"))
    found = with_arms(Match(on="flops", phase=phase), average=AVERAGE, btm=btm)
    budgets = solve(found)
    branch = expert_budget(found).training_flops
    for arm, count_ in (("average", 3), ("btm", 2)):
        budget = budgets[arm]
        assert budget.steps == budget.tokens == budget.training_flops == 0
        assert not budget.matched and budget.parts == ()
        assert budget.lineage_flops == seed_budget(found).training_flops + count_ * branch
    assert (budgets["average"].match_ratio > 0) == (phase == "all")


def test_a_short_mixture_phase_does_not_match_an_arm_without_one():
    """Its lineage is within the tolerance then, but nothing of it is a mixture phase."""
    found = with_arms(Match(on="flops", phase="all"), average=AVERAGE)
    sizes = found.scale.phases.mixture.model_copy(update={"tokens": 4096, "warmup_steps": 0})
    phases = found.scale.phases.model_copy(update={"mixture": sizes})
    found = dataclasses.replace(found, scale=found.scale.model_copy(update={"phases": phases}))
    average = solve(found)["average"]
    assert average.match_ratio > 1 - TOLERANCE and not average.matched


def test_unmatched_needs_an_arm_that_is_not():
    match = Match(on="flops", unmatched="untrained arms are shown beside")
    assert not solve(with_arms(match, average=AVERAGE))["average"].matched
    with pytest.raises(SpecError, match=r"match\.unmatched must not be given where every arm is"):
        solve(with_arms(match))


@pytest.mark.parametrize("on", ["tokens", "flops"])
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_two_parts_share_one_budget(on, share):
    method = TO_SPARSE.model_copy(update={"sparse_share": share})
    budget = solve(with_arms(Match(on=on), sparse=method))["sparse"]
    first, second = budget.parts
    assert budget.matched and budget.flops == second.flops
    assert (first.flops, second.flops) == tuple(
        per_token(resolved().model, part, 4, resolved().model.max_seq_len)
        for part in (method.lory, method.sparse)
    )
    quantity = "tokens" if on == "tokens" else "training_flops"
    whole = getattr(first, quantity) + getattr(second, quantity)
    assert whole == getattr(budget, quantity)
    assert getattr(second, quantity) / whole == pytest.approx(share, abs=0.005)
    assert budget.executed_flops == first.executed_flops + second.executed_flops


def test_two_parts_may_be_the_baseline():
    found = with_arms(Match(on="flops"), sparse=TO_SPARSE)
    ablation = found.ablation.model_copy(update={"baseline": "sparse"})
    budgets = solve(dataclasses.replace(found, ablation=ablation))
    assert budgets["sparse"].matched and budgets["sparse"].match_ratio == pytest.approx(1, abs=5e-3)


def test_low_rank_branches_are_charged_what_they_cost():
    full = expert_budget(resolved())
    same_tokens = expert_budget(resolved(), BranchSpec(lora=LORA))
    same_flops = expert_budget(resolved(), BranchSpec(lora=LORA, equal="flops"))
    assert same_tokens.tokens == full.tokens
    assert 0.66 < same_tokens.training_flops / full.training_flops < 0.9
    assert same_flops.training_flops == pytest.approx(full.training_flops, rel=0.01)
    assert same_flops.tokens > 1.1 * full.tokens
    method = BTX.model_copy(update={"branch": BranchSpec(lora=LORA)})
    budgets = solve(with_arms(Match(on="flops", phase="all"), lora=method))
    saved = budgets["btx"].lineage_flops - budgets["btx"].training_flops
    saved -= budgets["lora"].lineage_flops - budgets["lora"].training_flops
    assert saved == 3 * (full.training_flops - same_tokens.training_flops)


@pytest.mark.parametrize("method", [BTX, KV_SHARING, KV_EXPERTS, SPARSE])
@pytest.mark.parametrize("params", ["active", "total"])
@pytest.mark.parametrize("model", [SMALL, LARGE], ids=["small", "large"])
def test_a_dense_model_of_the_same_size(model, method, params):
    width = dense_ffn_dim(model, method, 4, params)
    wanted = getattr(count(model, method, 4), params)

    def off(ffn_dim):
        dense = DenseMethod(method="dense", start="scratch", ffn_dim=ffn_dim)
        return abs(count(model, dense, 1).total - wanted)

    assert off(width) <= min(off(width - 1), off(width + 1))
    assert off(width) / wanted < 1e-4


def test_a_dense_model_has_its_own_size():
    assert dense_ffn_dim(SMALL, DENSE, 1, "total") == SMALL.ffn_dim


def test_a_size_by_name_is_settled():
    sized = SCRATCH.model_copy(update={"size_of": SizeOf(arm="btx", params="total")})
    found = with_arms(Match(on="flops"), sized=sized)
    method = settled(found).arms["sized"]
    width = dense_ffn_dim(found.model, found.arms["btx"], 4, "total")
    assert method == SCRATCH.model_copy(update={"ffn_dim": width})
    assert settled(settled(found)) == settled(found)
    assert solve(found)["sized"] == solve(settled(found))["sized"]
