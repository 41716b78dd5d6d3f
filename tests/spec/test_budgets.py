"""Budgets: what they make of a spec, and everything that is refused."""

from pathlib import Path

import pytest

from bam_lab.cost.match import solve
from bam_lab.errors import SpecError
from bam_lab.run.graph import build_graph
from bam_lab.spec.load import load_ablation

FIXTURES = Path(__file__).parents[1] / "fixtures"
LONG = "scale.phases.mixture.tokens=51200"  # 400 steps
BUDGETS = "budgets=[0.5, 1, 2]"


def loaded(*overrides: str):
    return load_ablation(str(FIXTURES / "ablation.yaml"), overrides=overrides)


def problems(*overrides: str) -> str:
    with pytest.raises(SpecError) as error:
        loaded(*overrides)
    return "\n".join(error.value.problems)


def test_a_budget_is_a_setting_of_its_own_length():
    resolved = loaded(LONG, BUDGETS)
    assert [name for name, _ in resolved.settings] == ["0.5x", "1x", "2x"]
    assert list(resolved.arms)[:3] == ["btx@0.5x", "soft@0.5x", "btx@1x"]
    assert resolved.axes["soft@2x"] == {"budget": 2}
    for times, (_, child) in zip((0.5, 1, 2), resolved.settings, strict=True):
        mixture = child.scale.phases.mixture
        assert (mixture.tokens, mixture.schedule) == (51200 * times, "stable_then_decay")
        assert child.point.changes == {
            "scale.phases.mixture.schedule": "stable_then_decay",
            "scale.phases.mixture.tokens": 51200 * times,
        }
        assert child.scale.phases.expert == resolved.scale.phases.expert
    assert solve(resolved)["btx@2x"].steps == 800


def test_an_arm_trains_one_stable_run_and_a_decay_a_budget():
    graph = build_graph(loaded(LONG, BUDGETS), 1, "digest")
    trained = [s for s in graph.stages.values() if s.name == "mixture" and "btx" in (s.arm or "")]
    steps = [(s.spec.get("first_step", 0), s.spec["steps"]) for s in trained]
    assert steps == [(0, 160), (160, 200), (160, 320), (320, 400), (320, 640), (640, 800)]
    ends = {s.spec["steps"]: s.fingerprint for s in trained}
    for stage in trained[1:]:
        assert stage.inputs["before"] == ends[stage.spec["first_step"]]
    # Every arm has what it is made of: all that is spent is its own budget.
    rows = [*graph.stages.values(), *graph.again]
    for arm, total in {"btx@0.5x": 200, "btx@1x": 400, "btx@2x": 800}.items():
        own = [s.spec for s in rows if s.arm == arm and s.name == "mixture"]
        assert sum(spec["steps"] - spec.get("first_step", 0) for spec in own) == total
    assert sum(s.name == "upcycle" for s in graph.stages.values()) == 2


def test_beside_settings_each_has_every_budget():
    resolved = loaded(LONG, BUDGETS, "settings={parallel: {}, serial: {model.block: serial}}")
    names = [f"{setting}-{times}x" for setting in ("parallel", "serial") for times in (0.5, 1, 2)]
    assert [name for name, _ in resolved.settings] == [n.replace("1.0x", "1x") for n in names]
    assert resolved.axes["btx@serial-2x"] == {"setting": "serial", "budget": 2}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((LONG, "budgets=[1]"), "budgets must hold two budgets or more, got 1."),
        ((LONG, "budgets=[2, 1]"), "budgets must rise from the smallest to the largest, got"),
        ((LONG, "budgets=[1, 1.0]"), "budgets must rise from the smallest to the largest, got"),
        ((LONG, "budgets=[0, 1]"), "budgets.0 must be > 0.0, got 0"),
        ((LONG, "budgets=[1, yes]"), "budgets.1 must be a number, got 'yes'"),
        ((LONG, "budgets=2"), "budgets must be a list, got 2"),
        ((LONG, "budgets=[1, .inf]"), "budgets.1 must be a finite number, got inf"),
        ((LONG, "budgets=[1, 1e300]"), "budgets.1 must be at most 1,000,000, got 1e+300"),
        ((LONG, "budgets=[1, 1.0000001]"), "budgets.1 must differ from 1x in six digits, got 1.00"),
        ((LONG, "budgets=[1, 1.0001]"), "budgets.1 must differ from setting '1x', got the same"),
        ((LONG, "budgets=[0.4, 1]", "scale.trial=false"), "phase 200 steps or more, got 160"),
        (
            (LONG, BUDGETS, "scale.phases.mixture.warmup_steps=170"),
            "must give more optimizer steps than warmup_steps 170 and the 40 of the decay together",
        ),
        (
            (LONG, "budgets=[1, 2]", "scale.phases.mixture.schedule=cosine"),
            "budgets.0 must not stand with `schedule: cosine`",
        ),
        ((LONG, BUDGETS, "match.across=true"), "match.across must not be given with budgets"),
        (
            (LONG, BUDGETS, "settings={a: {}, b: {scale.phases.mixture.tokens: 9}}"),
            "must not be changed by a setting where there are budgets",
        ),
        (
            (LONG, BUDGETS, "arms.two={method: lory_to_sparse, segment_len: 8, num_experts: 4, "
             "first_segment: uniform, sparse_share: 0.5, "
             "ffn_router: {score: softmax, select: top_k, top_k: 2, renormalize: true}}"),
            "must not have a mixture phase of two parts where there are budgets",
        ),
        ((LONG, BUDGETS, "arms.soft.data={general_repeats: 2}"), "must not say general_repeats"),
        ((LONG, BUDGETS, "scale.phases.mixture.decay_share=1.0"), "decay_share must be < 1"),
    ],
)  # fmt: skip
def test_bad_budgets_are_named(overrides, message):
    text = problems(*overrides)
    assert message in text
    assert text.count(message) == 1


def test_an_arm_that_the_match_leaves_too_little_is_named():
    """Of 200 steps the baseline has one between warm-up and decay, `soft` fewer than none."""
    resolved = loaded(LONG, "budgets=[0.5, 1]", "scale.phases.mixture.warmup_steps=159")
    with pytest.raises(
        SpecError, match=r"soft@0\.5x must train longer than warmup_steps 159 and th"
    ):
        solve(resolved)
