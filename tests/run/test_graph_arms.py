"""Graphs of arms that are not one mixture phase from dense experts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from bam_lab.errors import SpecError
from bam_lab.run.graph import build_graph
from bam_lab.run.stage import Graph, Stage
from bam_lab.spec.load import load_ablation
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.resolved import ResolvedAblation

TOP_2 = {"score": "softmax", "select": "top_k", "top_k": 2, "renormalize": False}
LORA = {"lora": {"rank": 2, "alpha": 4.0, "targets": ["ffn"]}}


@pytest.fixture
def resolved(fixture_ablation: Path) -> ResolvedAblation:
    return load_ablation(str(fixture_ablation))


def method(raw: dict[str, Any]) -> MethodSpec:
    return TypeAdapter(MethodSpec).validate_python(raw, strict=False)


def graph_of(resolved: ResolvedAblation, raw: dict[str, Any], replicates: int = 1) -> Graph:
    """Return the graph of the baseline and one more arm."""
    arms = {"btx": resolved.arms["btx"], "arm": method(raw)}
    return build_graph(replace(resolved, arms=arms), replicates, "digest")


def way(graph: Graph, stage: Stage) -> list[str]:
    """Return the names and roles of an arm's own stages, from its last one back."""
    names = []
    while stage.arm:
        names.append(f"{stage.name}: {stage.role}")
        role = next(r for r in ("mixture", "upcycle", "expert0", "tokenizer") if r in stage.inputs)
        stage = graph.stages[stage.inputs[role]]
    return names


def evaluated(graph: Graph) -> list[tuple[str, str]]:
    found = [stage for stage in graph.stages.values() if stage.arm == "arm"]
    return [(s.role, graph.needs(s)[0].name) for s in found if s.name == "evaluate"]


@pytest.mark.parametrize("raw", [{"method": "average"}, {"method": "btm", "top_k": 2}])
def test_an_arm_without_training_is_evaluated_as_it_is(
    resolved: ResolvedAblation, raw: dict[str, Any]
) -> None:
    graph = graph_of(resolved, raw)
    assert way(graph, graph.arm("arm", 0)) == ["upcycle: upcycle"]
    assert evaluated(graph) == [("arm", "upcycle")]


def test_an_ensemble_is_told_each_experts_text(resolved: ResolvedAblation) -> None:
    raw = {"method": "btm", "top_k": 1, "experts": ("seed_model", "math.1of2", "code")}
    spec = graph_of(resolved, raw).arm("arm", 0).spec
    assert spec["texts"] == [resolved.recipe.seed_model.mix, {"math.1of2": 1.0}, {"code": 1.0}]


def test_weights_are_those_of_the_places_not_of_the_names(resolved: ResolvedAblation) -> None:
    def fingerprint(experts: Sequence[str], weights: dict[str, float]) -> str:
        raw = {"method": "average", "experts": tuple(experts), "weights": weights}
        stage = graph_of(resolved, raw).arm("arm", 0)
        assert list(stage.spec["method"]["weights"]) == ["0", "1"]
        return stage.fingerprint

    one = fingerprint(("code", "law"), {"code": 1.0, "law": 3.0})
    assert fingerprint(("code", "law"), {"law": 3.0, "code": 1.0}) == one
    assert fingerprint(("code", "law"), {"code": 3.0, "law": 1.0}) != one


def test_a_model_from_scratch_has_neither_seed_model_nor_branches(
    resolved: ResolvedAblation,
) -> None:
    scratch = method({"method": "dense", "start": "scratch", "ffn_dim": 96})
    ablation = resolved.ablation.model_copy(update={"baseline": "arm"})
    alone = replace(resolved, ablation=ablation, arms={"arm": scratch})
    graph = build_graph(alone, 1, "digest")
    names = [stage.name for stage in graph.stages.values()]
    assert names == ["corpus", "tokenizer", "mixture", "evaluate"]
    stage = graph.arm("arm", 0)
    assert stage.spec["method"] == {"method": "dense", "start": "scratch", "ffn_dim": 96}
    sizes = resolved.scale.phases
    assert stage.spec["size"]["peak_lr"] == sizes.seed_model.peak_lr != sizes.mixture.peak_lr
    assert stage.spec["size"]["batch_sequences"] == sizes.mixture.batch_sequences


def test_a_size_by_name_is_the_same_run_as_its_number(resolved: ResolvedAblation) -> None:
    named = {"method": "dense", "start": "scratch", "size_of": {"arm": "btx", "params": "total"}}
    stage = graph_of(resolved, named).arm("arm", 0)
    width = stage.spec["method"]["ffn_dim"]
    number = {"method": "dense", "start": "scratch", "ffn_dim": width}
    assert graph_of(resolved, number).arm("arm", 0).fingerprint == stage.fingerprint
    assert width > resolved.model.ffn_dim


def test_a_lory_turned_sparse_trains_twice(resolved: ResolvedAblation) -> None:
    raw = {
        "method": "lory_to_sparse",
        "segment_len": 8,
        "first_segment": "uniform",
        "ffn_router": TOP_2,
        "sparse_share": 0.4,
    }
    graph = graph_of(resolved, raw, replicates=2)
    for number in (0, 1):
        last = graph.arm("arm", number)
        assert way(graph, last) == [
            "mixture: mixture",
            "upcycle: conversion",
            "mixture: first part",
            "upcycle: upcycle",
        ]
        conversion = graph.stages[last.inputs["upcycle"]]
        first = graph.stages[conversion.inputs["mixture"]]
        assert (first.spec["method"]["method"], last.spec["method"]["method"]) == ("lory", "btx")
        assert conversion.spec["method"] == last.spec["method"]
        assert first.spec["mix"] == last.spec["mix"]
        assert {first.spec["rng_seed"], last.spec["rng_seed"]} == {number}
    assert evaluated(graph) == [("step-0", "upcycle"), ("arm", "mixture")] * 2


def test_low_rank_branches_stand_beside_full_ones(resolved: ResolvedAblation) -> None:
    plain = build_graph(resolved, 1, "digest")
    raw = {"method": "btx", "ffn_router": TOP_2, "branch": LORA}
    graph = graph_of(resolved, raw)
    full = [s for s in plain.stages.values() if s.name == "expert"]
    assert all(stage.fingerprint in graph.stages for stage in full)
    low = [s for s in graph.stages.values() if s.name == "expert" and "lora" in s.spec]
    assert [stage.label for stage in low] == [
        f"expert {name}+lora-r2-a4-ffn r0" for name in ("code", "law", "math")
    ]
    assert low[0].spec["lora"] == {"rank": 2, "alpha": 4.0, "targets": ["ffn"]}
    spent, whole = (s.settings["budget"]["training_flops"] for s in (low[0], full[0]))
    assert spent < whole and low[0].spec["steps"] == full[0].spec["steps"]
    arm = graph.arm("arm", 0)
    assert "branch" not in arm.spec["method"]
    upcycle = graph.stages[arm.inputs["upcycle"]]
    assert [need.label for need in graph.needs(upcycle)][:2] == ["seed_model", low[0].label]


def test_parts_of_a_domain_are_branches_of_their_own(resolved: ResolvedAblation) -> None:
    raw = {"method": "btx", "ffn_router": TOP_2, "experts": ("math.1of2", "math.2of2")}
    graph = graph_of(resolved, raw)
    parts = [s for s in graph.stages.values() if s.domain in raw["experts"] and s.name == "expert"]
    share = resolved.recipe.expert.general_share
    assert [stage.spec["mix"] for stage in parts] == [
        {name: 1 - share, "general": share} for name in raw["experts"]
    ]
    whole = {"math", "code", "law", "general"}
    assert all(set(stage.settings["domains"]) == whole for stage in parts)


def test_an_untrained_baseline_is_refused(resolved: ResolvedAblation) -> None:
    ablation = resolved.ablation.model_copy(update={"baseline": "arm"})
    arms = {**resolved.arms, "arm": method({"method": "average"})}
    with pytest.raises(SpecError, match="baseline must be an arm with a mixture phase, got aver"):
        build_graph(replace(resolved, ablation=ablation, arms=arms), 1, "digest")


def test_a_dense_warm_up_is_a_seed_model_without_branches() -> None:
    """Lory's own road (arXiv:2405.03133 §4.1): 5% of all tokens at nano, on the same text."""
    resolved = load_ablation("tests/fixtures/warmup.yaml", scale="nano-lory")
    graph = build_graph(resolved, 1, "digest")
    assert "expert" not in {stage.name for stage in graph.stages.values()}
    (warmup,) = [stage for stage in graph.stages.values() if stage.name == "seed_model"]
    lory, scratch = graph.arm("lory", 0), graph.arm("scratch", 0)
    assert warmup.spec["mix"] == lory.spec["mix"]
    assert warmup.spec["steps"] / (warmup.spec["steps"] + lory.spec["steps"]) == 0.05
    assert warmup.spec["size"]["peak_lr"] == lory.spec["size"]["peak_lr"]
    upcycle = graph.stages[lory.inputs["upcycle"]]
    assert upcycle.inputs["expert0"] == warmup.fingerprint
    assert graph.stages[scratch.inputs["upcycle"]].inputs.keys() == {"tokenizer"}
