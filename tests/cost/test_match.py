"""The solver: arms come out equal in what the spec says, and say so when they do not."""

import dataclasses

import pytest

from bam_lab.cost.flops import per_token
from bam_lab.cost.match import (
    TOLERANCE,
    expert_budget,
    num_experts,
    seed_budget,
    solve,
    used_branches,
)
from bam_lab.errors import SpecError
from bam_lab.spec.ablation import Match
from bam_lab.spec.branches import Branch
from bam_lab.spec.load import load_ablation
from tests.cost.shapes import LORY, SPARSE


def resolved(match=None, **changes):
    """Return the routing ablation at nano, its match replaced."""
    found = load_ablation("bam-attention-routing")
    if match is not None:
        changes["ablation"] = found.ablation.model_copy(update={"match": match})
    return dataclasses.replace(found, **changes)


def with_experts(found, arm, experts):
    """Give one arm its own list of experts."""
    arms = dict(found.arms)
    arms[arm] = arms[arm].model_copy(update={"experts": experts})
    return dataclasses.replace(found, arms=arms)


def test_flops_of_the_mixture_phase_are_equal():
    found = resolved()
    budgets = solve(found)
    base = budgets["btx"]
    size = found.scale.phases.mixture
    step_tokens = size.batch_sequences * found.model.max_seq_len
    assert base.tokens == base.steps * step_tokens == size.tokens
    for arm, budget in budgets.items():
        assert budget.matched, arm
        assert budget.match_ratio == budget.flops_ratio == pytest.approx(1, abs=TOLERANCE)
        nearer = budget.flops.model_training * step_tokens / 2
        assert abs(budget.training_flops - base.training_flops) <= nearer
    assert budgets["soft"].steps < budgets["top-2"].steps < budgets["top-1"].steps < base.steps


def test_training_flops_are_tokens_times_flops_per_token():
    found = resolved()
    soft = solve(found)["soft"]
    counted = per_token(found.model, found.arms["soft"], 4, found.model.max_seq_len)
    assert soft.training_flops == soft.tokens * counted.model_training
    assert soft.executed_flops == soft.tokens * counted.executed_training


def test_tokens_give_every_arm_the_same_steps():
    budgets = solve(resolved(Match(on="tokens")))
    assert len({budget.steps for budget in budgets.values()}) == 1
    assert all(budget.matched and budget.match_ratio == 1 for budget in budgets.values())
    assert budgets["soft"].flops_ratio > 1.2


def test_all_phases_charge_an_arm_only_for_the_branches_it_uses():
    found = with_experts(
        resolved(Match(on="flops", phase="all")), "soft", ("seed_model", "seed_model", "code")
    )
    budgets = solve(found)
    seed, branch = seed_budget(found).training_flops, expert_budget(found).training_flops
    assert budgets["btx"].lineage_flops == seed + 3 * branch + budgets["btx"].training_flops
    assert budgets["soft"].lineage_flops == seed + branch + budgets["soft"].training_flops
    # What the two branches would have cost goes into its own mixture phase.
    saved = budgets["soft"].training_flops - budgets["btx"].training_flops
    assert saved == pytest.approx(2 * branch, rel=0.01)
    assert all(budget.matched for budget in budgets.values())
    assert budgets["soft"].flops_ratio > 1.5


def test_sparse_upcycling_is_charged_no_branch():
    found = resolved(Match(on="flops", phase="all"))
    found = dataclasses.replace(found, arms={"btx": found.arms["btx"], "sparse": SPARSE})
    budgets = solve(found)
    seed, branch = seed_budget(found).training_flops, expert_budget(found).training_flops
    sparse = budgets["sparse"]
    assert sparse.lineage_flops == seed + sparse.training_flops
    assert sparse.matched
    saved = sparse.training_flops - budgets["btx"].training_flops
    assert saved == pytest.approx(3 * branch, rel=0.01)
    assert num_experts(found, SPARSE) == 4
    assert used_branches(found, ["sparse"]) == ()


def test_lory_is_charged_the_branches_of_its_experts_and_none_for_copies():
    found = resolved(Match(on="flops", phase="all"))
    copies = LORY.model_copy(update={"num_experts": 4})
    found = dataclasses.replace(found, arms={"btx": LORY, "copies": copies})
    budgets = solve(found)
    seed, branch = seed_budget(found).training_flops, expert_budget(found).training_flops
    assert budgets["btx"].lineage_flops == seed + 3 * branch + budgets["btx"].training_flops
    assert budgets["copies"].lineage_flops == seed + budgets["copies"].training_flops
    assert used_branches(found, ["copies"]) == ()


def test_an_arm_that_cannot_be_matched_is_the_users_problem():
    found = resolved(Match(on="flops", phase="all"))
    sizes = found.scale.phases.mixture.model_copy(update={"tokens": 4096, "warmup_steps": 0})
    phases = found.scale.phases.model_copy(update={"mixture": sizes})
    found = dataclasses.replace(found, scale=found.scale.model_copy(update={"phases": phases}))
    found = with_experts(found, "btx", ("seed_model", "seed_model"))
    with pytest.raises(SpecError, match="leave arm soft a mixture phase") as caught:
        solve(found)
    assert len(caught.value.problems) == 4


def test_copies_count_as_experts_but_not_as_branches():
    found = with_experts(resolved(), "soft", ("seed_model", "code", "code", "code", "code"))
    assert num_experts(found, found.arms["soft"]) == 5
    assert used_branches(found, ["soft"]) == (Branch("code", None),)
    assert [b.label for b in used_branches(found, found.arms)] == ["code", "law", "math"]


def test_an_arm_must_outlast_its_warm_up():
    found = resolved()
    sizes = found.scale.phases.mixture.model_copy(update={"warmup_steps": 800})
    phases = found.scale.phases.model_copy(update={"mixture": sizes})
    found = dataclasses.replace(found, scale=found.scale.model_copy(update={"phases": phases}))
    with pytest.raises(
        SpecError, match=r"arms\.soft must train longer than warmup_steps 800"
    ) as told:
        solve(found)
    assert len(told.value.problems) == 1
