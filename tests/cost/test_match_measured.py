"""Matches by what is measured, on constructed seconds; and matches across settings."""

import dataclasses
import json

import pytest

from bam_lab.cost.match import settled, solve
from bam_lab.cost.match.knobs import decoded_models
from bam_lab.cost.match.measured import DENSE_MODEL, Model, trained_models
from bam_lab.cost.match.phases import steps_of
from bam_lab.errors import SpecError
from bam_lab.spec.ablation import Match
from bam_lab.spec.load import load_ablation
from tests.cost.shapes import BTX, KV_EXPERTS, KV_SHARING, SPARSE
from tests.cost.test_match_arms import AVERAGE, TO_SPARSE
from tests.cost.test_match_knobs import SCRATCH, btx, of


def test_device_time_gives_steps_that_take_as_long():
    found = of(Match(on="device-time"), BTX, soft=KV_SHARING, average=AVERAGE)
    steps = steps_of(found.scale.phases.mixture, found.model)
    base, soft = trained_models(found)
    timed = dataclasses.replace(found, measured={base.key: 0.3, soft.key: 0.4})
    budgets = solve(timed)
    assert budgets["soft"].steps == round(steps * 0.3 / 0.4)
    assert budgets["soft"].match_ratio == pytest.approx(round(steps * 0.75) * 0.4 / (steps * 0.3))
    assert budgets["soft"].matched and budgets["soft"].known and not budgets["average"].matched
    assert not solve(found)["soft"].known  # FLOPs stand in
    assert solve(found)["soft"].steps < steps


def test_device_time_of_all_phases_charges_seed_model_and_branches_at_the_pace_of_a_dense_step():
    found = of(Match(on="device-time", phase="all"), BTX, upcycled=SPARSE)
    base, copies, dense = trained_models(found)
    assert dense == DENSE_MODEL
    measured = {base.key: 0.4, copies.key: 0.5, dense.key: 0.25}
    budgets = solve(dataclasses.replace(found, measured=measured))
    phases, model = found.scale.phases, found.model
    rows = phases.mixture.batch_sequences
    branch = 0.25 * steps_of(phases.expert, model) * phases.expert.batch_sequences / rows
    own = 0.4 * steps_of(phases.mixture, model)
    assert budgets["upcycled"].steps == round((3 * branch + own) / 0.5)
    assert budgets["upcycled"].match_ratio == pytest.approx(1, abs=0.001)
    assert budgets["upcycled"].matched and budgets["upcycled"].known
    assert solve(found)["upcycled"].steps > solve(found)["base"].steps  # FLOPs stand in
    alone = of(Match(on="device-time"), BTX, upcycled=SPARSE)
    assert solve(dataclasses.replace(alone, measured=measured))["upcycled"].steps == round(
        own / 0.5
    )


def test_both_parts_of_a_mixture_phase_take_their_own_time():
    found = of(Match(on="device-time"), BTX, two=TO_SPARSE)
    keys = [model.key for model in trained_models(found)]
    assert len(keys) == 3
    budget = solve(dataclasses.replace(found, measured=dict(zip(keys, (1, 2, 0.5), strict=True))))
    lory, sparse = budget["two"].parts
    steps = budget["base"].steps
    assert lory.steps == round(0.8 * steps / 2)
    assert sparse.steps == round((steps - 2 * lory.steps) / 0.5)
    assert budget["two"].match_ratio == pytest.approx(1, abs=0.001)


def test_decoding_takes_the_candidate_that_is_as_fast():
    match = Match(on="decode-throughput", by={"btx": ("num_experts", "top_k")})
    found = of(match, KV_SHARING, btx=BTX)
    models = decoded_models(found)
    active = {model.method.ffn_router.top_k for model in models if model.method.method == "btx"}
    assert {1, 2, 3, 4} <= active and len(models) <= 14
    measured = {
        model.key: 3.01 if model.method.method == "bam" else 1.5 * model.method.ffn_router.top_k
        for model in models
    }
    timed = dataclasses.replace(found, measured=measured)
    assert settled(timed).arms["btx"].ffn_router.top_k == 2
    assert settled(settled(timed)) == settled(timed)
    budget = solve(timed)["btx"]
    assert budget.match_ratio == pytest.approx(3.01 / 3.0) and budget.matched and budget.known
    slow = dataclasses.replace(
        found,
        measured={key: 4.0 for key in measured}
        | {model.key: 5.0 for model in models if model.method.method == "bam"},
    )
    with pytest.raises(SpecError, match=r"decode-throughput, got 1\.2500 of it with num_experts"):
        solve(slow)


def test_widths_are_timed_from_half_to_four_times_the_flops():
    match = Match(on="decode-throughput", by={"dense": ("ffn_dim",)})
    found = of(match, KV_SHARING, dense=SCRATCH)
    widths = sorted(
        m.method.ffn_dim for m in decoded_models(found) if getattr(m.method, "ffn_dim", None)
    )
    assert (
        len(widths) > 4 and widths[0] < found.model.ffn_dim < 8 * found.model.ffn_dim < widths[-1]
    )
    measured = {
        m.key: 1.0 if m.method.method == "bam" else (m.method.ffn_dim or 128) / widths[2]
        for m in decoded_models(found)
    }
    assert settled(dataclasses.replace(found, measured=measured)).arms["dense"].ffn_dim == widths[2]


def test_models_of_other_experts_are_one_model():
    """What is behind an expert is no matter to its speed; how many there are is."""
    others = BTX.model_copy(update={"experts": ("code", "law", "law", "law")})
    assert Model(BTX, 4).key == Model(others, 4).key != Model(btx(5, 1), 5).key


SETTINGS = {"short": {}, "long": {"scale.phases.mixture.tokens": 8192000}}


def settings(**match):
    arms = {"btx": {"method": "btx"}, "dense": {"method": "dense"}}
    texts = {
        "settings": SETTINGS,
        "arms": arms,
        "claims": [],
        "report.published": "",
        "match": {"on": "flops", **match},
    }
    overrides = [f"{key}={json.dumps(value)}" for key, value in texts.items()]
    return load_ablation("bam-attention-routing", overrides=overrides)


def test_each_setting_has_its_own_baseline():
    budgets = solve(settings())
    assert budgets["btx@long"].steps == 2 * budgets["btx@short"].steps
    assert all(budget.matched for budget in budgets.values())
    assert budgets["dense@long"].training_flops == pytest.approx(
        budgets["btx@long"].training_flops, rel=0.005
    )


def test_across_settings_all_have_the_first_ones_baseline():
    budgets = solve(settings(across=True))
    first = budgets["btx@short"].training_flops
    assert budgets["btx@long"].steps == budgets["btx@short"].steps
    for budget in budgets.values():
        assert budget.matched and budget.training_flops == pytest.approx(first, rel=0.005)


@pytest.mark.parametrize("method", [KV_EXPERTS])
def test_sizes_keep_the_tokens(method):
    budgets = solve(of(Match(on="inference-flops", unmatched="shown"), method, btx=BTX))
    assert budgets["btx"].tokens == budgets["base"].tokens
    assert not budgets["btx"].matched and budgets["btx"].match_ratio < 0.8
