"""Stable runs in the graph: cut once, shared between lengths, and the same work as one run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bam_lab.run.graph import build_graph
from bam_lab.run.stage import Graph, Stage
from bam_lab.run.stretches import StableRuns, Stretch
from bam_lab.spec.load import load_ablation
from bam_lab.spec.resolved import ResolvedAblation


def loaded(path: Path, tokens: int, *more: str) -> ResolvedAblation:
    changes = (f"tokens={tokens}", "schedule=stable_then_decay", *more)
    return load_ablation(
        str(path), overrides=[f"scale.phases.mixture.{change}" for change in changes]
    )


def mixtures(graph: Graph, arm: str) -> list[Stage]:
    found = [s for s in graph.stages.values() if s.name == "mixture" and s.arm == arm]
    return sorted(found, key=lambda stage: stage.spec["steps"])


def test_a_phase_is_a_stable_run_and_its_decay(fixture_ablation: Path) -> None:
    resolved = loaded(fixture_ablation, 5120)
    graph = build_graph(resolved, 1, "digest")
    cosine = build_graph(load_ablation(str(fixture_ablation)), 1, "digest")
    run, decay = mixtures(graph, "btx")
    assert (run.role, decay.role) == ("stable run to step 32", "mixture")
    assert (run.spec["steps"], run.spec["decay_steps"]) == (32, 0)
    assert (decay.spec["first_step"], decay.spec["steps"], decay.spec["decay_steps"]) == (32, 40, 8)
    assert decay.inputs["before"] == run.fingerprint
    assert "before" not in run.inputs and run.inputs["upcycle"] in graph.stages
    assert graph.arm("btx", 0) == decay
    evaluated = [s for s in graph.stages.values() if s.inputs.get("model") == run.fingerprint]
    assert not evaluated
    whole = mixtures(cosine, "btx")[0].settings["budget"]
    for count in ("training_flops", "executed_flops"):  # of 20 steps
        assert run.settings["budget"][count] * 20 == whole[count] * 32
        assert decay.settings["budget"][count] * 20 == whole[count] * 8


def test_where_a_phase_decays_changes_its_stable_run_only_in_length(fixture_ablation: Path) -> None:
    one = build_graph(loaded(fixture_ablation, 5120), 1, "digest")
    # Half of 64 steps: the stable run that the other has.
    other = build_graph(loaded(fixture_ablation, 8192, "decay_share=0.5"), 1, "digest")
    assert mixtures(one, "btx")[0].fingerprint == mixtures(other, "btx")[0].fingerprint
    assert mixtures(one, "btx")[1].fingerprint != mixtures(other, "btx")[1].fingerprint


def made(spec: Sequence[str] = ("a",)):
    def stage(stretch: Stretch, further: dict[str, str]) -> Stage:
        details = {"of": list(spec), "steps": stretch.last, "first_step": stretch.first}
        inputs = {"upcycle": "u", **further}
        key = f"{spec}{stretch}{further}"
        return Stage("mixture", "", details, inputs, key, 1, 0.0, "mixture")

    return stage


def ends(pieces: Sequence[Stage]) -> list[tuple[int, int]]:
    return [(piece.spec["first_step"], piece.spec["steps"]) for piece in pieces]


def test_longer_phases_continue_what_shorter_ones_trained() -> None:
    runs = StableRuns()
    short = runs.up_to(40, made())
    assert ends(short) == [(0, 40)]
    assert runs.up_to(40, made()) == short
    long = runs.up_to(160, made())
    assert ends(long) == [(0, 40), (40, 160)] and long[0] is short[0]
    assert long[1].inputs == {"upcycle": "u", "before": short[0].fingerprint}
    assert ends(runs.up_to(80, made())) == [(0, 40), (40, 80)]  # a branch off, not a rewind
    assert ends(runs.up_to(20, made())) == [(0, 20)]
    assert ends(runs.up_to(80, made("b"))) == [(0, 80)]  # another run


@pytest.mark.parametrize("method", ["tokens", "flops"])
def test_two_settings_of_tokens_share_it(fixture_ablation: Path, method: str) -> None:
    """Also where arms take other steps than the baseline."""
    resolved = loaded(fixture_ablation, 5120, "batch_sequences=4")
    match = resolved.ablation.match.model_copy(update={"on": method})
    resolved = replace(resolved, ablation=resolved.ablation.model_copy(update={"match": match}))
    for arm in resolved.arms:
        run, decay = mixtures(build_graph(resolved, 1, "digest"), arm)
        assert run.spec["steps"] + decay.spec["decay_steps"] == decay.spec["steps"]
