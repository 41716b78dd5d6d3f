"""Knobs: what is found is the best of all combinations; without a solution the nearest is shown."""

import dataclasses
from itertools import product

import pytest

from bam_lab.cost.flops import per_token
from bam_lab.cost.match import TOLERANCE, num_experts, settled, solve
from bam_lab.cost.match.knobs import candidates
from bam_lab.cost.params import count
from bam_lab.errors import SpecError
from bam_lab.spec.ablation import Match
from bam_lab.spec.dense import DenseMethod, SizeOf
from bam_lab.spec.methods import LoryMethod
from tests.cost.shapes import BTX, KV_EXPERTS, KV_SHARING, SPARSE, TOP_1
from tests.cost.test_match import resolved

SCRATCH = DenseMethod(method="dense", start="scratch")
LORY = LoryMethod(method="lory", segment_len=32, first_segment="bos", num_experts=4)


def of(match: Match, baseline=KV_EXPERTS, **arms):
    """Return an ablation of a baseline called `base` and other arms."""
    found = resolved(match)
    ablation = found.ablation.model_copy(update={"baseline": "base"})
    arms = {"base": baseline, **arms}
    bases = {arm: arm for arm in arms}
    return dataclasses.replace(found, ablation=ablation, arms=arms, bases=bases)


def btx(experts: int, top_k: int):
    names = ("seed_model", "code", "law", "math", *("seed_model",) * (experts - 4))
    router = TOP_1.model_copy(update={"top_k": top_k})
    return BTX.model_copy(update={"experts": names, "ffn_router": router})


def test_six_experts_have_bams_total_parameters():
    """arXiv:2408.08274 Table 4: at nano, too, an attention expert costs as much as two FFNs."""
    found = of(Match(on="params-total", by={"btx": ("num_experts",)}), btx=BTX)
    budgets = solve(found)
    method = settled(found).arms["btx"]
    assert method.experts == ("seed_model", "code", "law", "math", "seed_model", "seed_model")
    assert budgets["btx"].matched and budgets["btx"].steps == budgets["base"].steps
    assert budgets["btx"].tokens == budgets["base"].tokens
    sizes = [count(found.model, m, n).total for m, n in ((method, 6), (KV_EXPERTS, 4))]
    assert budgets["btx"].match_ratio == sizes[0] / sizes[1]


def test_three_of_six_experts_have_bams_active_and_total_parameters():
    """arXiv:2408.08274 Table 5: of all numbers of experts the one whose total is equal too."""
    found = of(Match(on="params-active", by={"btx": ("num_experts", "top_k")}), btx=BTX)
    method = settled(found).arms["btx"]
    assert (len(method.experts), method.ffn_router.top_k) == (6, 3)


@pytest.mark.parametrize("on", ["params-active", "inference-flops"])
@pytest.mark.parametrize("baseline", [KV_EXPERTS, KV_SHARING], ids=["experts", "sharing"])
def test_no_combination_is_better(on, baseline):
    match = Match(on=on, by={"btx": ("num_experts", "top_k")}, unmatched="compared below")
    found = of(match, baseline, btx=BTX)
    model, chosen = found.model, settled(found).arms["btx"]

    def sizes(method):
        n = num_experts(found, method)
        total = count(model, method, n)
        flops = per_token(model, method, n, model.max_seq_len).model_forward
        return total.total, total.active if on == "params-active" else flops

    def rank(method):
        (total, size), (base_total, base) = sizes(method), sizes(baseline)
        off = abs(size / base - 1)
        return (0, abs(total / base_total - 1)) if off <= TOLERANCE else (1, off)

    every = [btx(n, k) for n, k in product(range(4, 17), range(1, 17)) if k <= n]
    assert rank(chosen) == min(map(rank, every))


def test_counted_experts_are_counted_up_and_down():
    match = Match(on="params-total", by={"sparse": ("num_experts",), "lory": ("num_experts",)})
    sparse = SPARSE.model_copy(update={"num_experts": 32, "layers": "all"})
    found = of(match, btx(9, 1), sparse=sparse, lory=LORY)
    assert settled(found).arms["sparse"].num_experts == 9
    assert settled(found).arms["lory"].num_experts == 9
    assert all(budget.matched for budget in solve(found).values())


@pytest.mark.parametrize("on", ["params-total", "params-active", "inference-flops"])
def test_a_width_is_the_nearest(on):
    found = of(Match(on=on, by={"dense": ("ffn_dim",)}), dense=SCRATCH)
    width = settled(found).arms["dense"].ffn_dim

    def off(ffn_dim):
        method = SCRATCH.model_copy(update={"ffn_dim": ffn_dim})
        wide = dataclasses.replace(
            found,
            arms={**found.arms, "dense": method},
            ablation=found.ablation.model_copy(update={"match": Match(on=on)}),
        )
        return abs(solve(wide)["dense"].match_ratio - 1)

    assert off(width) <= min(off(width - 1), off(width + 1)) < TOLERANCE


def test_a_size_by_name_follows_the_arm_that_is_turned():
    sized = SCRATCH.model_copy(update={"size_of": SizeOf(arm="btx", params="total")})
    found = of(Match(on="params-total", by={"btx": ("num_experts",)}), btx=BTX, sized=sized)
    budgets = solve(found)
    assert budgets["sized"].params.total == pytest.approx(budgets["btx"].params.total, rel=1e-3)
    assert settled(settled(found)) == settled(found)


def test_no_solution_shows_the_nearest():
    match = Match(on="params-total", by={"btx": ("num_experts",)})
    with pytest.raises(SpecError) as told:
        solve(of(match, SCRATCH.model_copy(update={"ffn_dim": 300}), btx=BTX))
    assert "match.by.btx must bring arm btx within 0.5% of the baseline's params-total" in str(
        told.value
    )
    assert "of it with num_experts 4, the nearest" in str(told.value)
    half = count(resolved().model, btx(6, 1), 6).total - 25_000
    width = SCRATCH.model_copy(update={"ffn_dim": 768 - 65})
    assert count(resolved().model, width, 1).total == pytest.approx(half, rel=0.01)
    reason = Match(on="params-total", by=match.by, unmatched="no number of experts is between")
    budgets = solve(of(reason, width, btx=BTX))
    assert not budgets["btx"].matched and budgets["btx"].params.total in (803_648, 852_928)


def test_no_value_fits():
    """A capacity for five experts of four has no effect, whatever the top-k."""
    router = TOP_1.model_copy(update={"capacity_factor": 5.0})
    method = BTX.model_copy(update={"ffn_router": router})
    with pytest.raises(SpecError, match=r"by\.btx must have a solution, but no top_k fits arm btx"):
        solve(of(Match(on="params-active", by={"btx": ("top_k",)}), btx=method))


def test_turned_arms_must_stay_apart():
    match = Match(on="params-total", by={"btx": ("num_experts",)})
    with pytest.raises(SpecError, match=r"arms\.btx must differ from arms\.six, got the same run"):
        solve(of(match, btx=BTX, six=btx(6, 1)))


def test_rules_of_the_spec_hold_for_every_candidate():
    renormalised = TOP_1.model_copy(update={"top_k": 2, "renormalize": True})
    method = BTX.model_copy(update={"ffn_router": renormalised})
    found = of(Match(on="params-active", by={"btx": ("top_k",)}), btx=method)
    assert [one.method.ffn_router.top_k for one in candidates(found, "btx")] == [2, 3, 4]


def test_batch_takes_the_baselines_steps():
    found = of(Match(on="flops", by={"soft": ("batch",)}), BTX, soft=KV_SHARING)
    base, soft = solve(found)["base"], solve(found)["soft"]
    a_sequence = soft.training_flops // soft.batch_sequences
    nearest = min(range(1, 64), key=lambda rows: abs(rows * a_sequence - base.training_flops))
    assert soft.steps == base.steps and soft.matched
    assert soft.batch_sequences == nearest < base.batch_sequences
    assert soft.tokens == soft.steps * nearest * found.model.max_seq_len


def test_a_batch_without_solution_shows_the_nearest():
    """Sixteenths of a batch are too coarse."""
    found = of(Match(on="flops", by={"soft": ("batch",)}), BTX, soft=KV_EXPERTS)
    sizes = found.scale.phases.mixture.model_copy(update={"batch_sequences": 3})
    phases = found.scale.phases.model_copy(update={"mixture": sizes})
    found = dataclasses.replace(found, scale=found.scale.model_copy(update={"phases": phases}))
    with pytest.raises(SpecError, match=r"of them with batches of 2 sequences, the nearest"):
        solve(found)
