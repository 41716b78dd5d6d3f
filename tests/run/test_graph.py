"""The graph: what is shared, what a replicate redoes, what changes a fingerprint."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bam_lab.errors import SpecError
from bam_lab.run.graph import build_graph
from bam_lab.run.stage import Graph
from bam_lab.spec.ablation import Replicates
from bam_lab.spec.load import load_ablation
from bam_lab.spec.methods import DenseMethod, LoryMethod, SparseUpcyclingMethod
from bam_lab.spec.resolved import ResolvedAblation
from bam_lab.spec.routers import TopKRouter


@pytest.fixture
def resolved(fixture_ablation: Path) -> ResolvedAblation:
    return load_ablation(str(fixture_ablation))


def counts(graph: Graph) -> dict[str, int]:
    return dict(Counter(stage.name for stage in graph.stages.values()))


def redone_from(resolved: ResolvedAblation, start: str) -> ResolvedAblation:
    replicates = Replicates.model_validate({"from": start, "count": 2})
    ablation = resolved.ablation.model_copy(update={"replicates": replicates})
    return replace(resolved, ablation=ablation)


def by_label(graph: Graph) -> dict[str, str]:
    return {stage.label: stage.fingerprint for stage in graph.stages.values()}


@pytest.mark.parametrize(
    ("start", "seed_models", "experts"), [("mixture", 1, 3), ("branch", 1, 6), ("seed", 2, 6)]
)
def test_replicates_redo_what_the_spec_says(
    resolved: ResolvedAblation, start: str, seed_models: int, experts: int
) -> None:
    graph = build_graph(redone_from(resolved, start), 2, "digest")
    assert counts(graph) == {
        "corpus": 1,
        "tokenizer": 1,
        "seed_model": seed_models,
        "expert": experts,
        "upcycle": 4,
        "mixture": 4,
        "evaluate": seed_models + experts + 4 + 4,
    }


def test_replicate_0_is_the_same_work_wherever_replicates_start(resolved: ResolvedAblation) -> None:
    graphs = [
        build_graph(redone_from(resolved, start), 1, "digest")
        for start in ("mixture", "branch", "seed")
    ]
    assert len({tuple(graph.stages) for graph in graphs}) == 1


def test_more_replicates_keep_the_first_ones(resolved: ResolvedAblation) -> None:
    one, two = (build_graph(resolved, count, "digest") for count in (1, 2))
    assert one.stages.keys() < two.stages.keys()


def test_inputs_stand_before_what_needs_them(resolved: ResolvedAblation) -> None:
    seen: set[str] = set()
    graph = build_graph(resolved, 2, "digest")
    for fingerprint, stage in graph.stages.items():
        assert stage.fingerprint == fingerprint
        assert seen.issuperset(stage.inputs.values()), stage.label
        seen.add(fingerprint)


def test_corpus_content_changes_everything_after_it(resolved: ResolvedAblation) -> None:
    first, second = (by_label(build_graph(resolved, 1, digest)) for digest in ("one", "two"))
    assert first.pop("corpus") == second.pop("corpus")
    assert not set(first.values()) & set(second.values())


def test_before_the_corpus_is_built_the_rest_is_not_known(resolved: ResolvedAblation) -> None:
    graph = build_graph(resolved, 1, None)
    assert not graph.known and counts(graph) == counts(build_graph(resolved, 1, "digest"))


def test_an_arm_changes_only_itself(resolved: ResolvedAblation) -> None:
    soft = resolved.arms["soft"].model_copy(update={"kv": "per_expert"})
    other = replace(resolved, arms={**resolved.arms, "soft": soft})
    first, second = (by_label(build_graph(r, 1, "digest")) for r in (resolved, other))
    assert {label for label in first if first[label] != second[label]} == {
        "upcycle soft r0",
        "evaluate upcycle soft r0",
        "mixture soft r0",
        "evaluate mixture soft r0",
    }


@pytest.mark.parametrize("update", [{"checkpoint_every": 7}])
def test_how_it_runs_changes_no_fingerprint(
    resolved: ResolvedAblation, update: dict[str, Any]
) -> None:
    other = replace(resolved, scale=resolved.scale.model_copy(update=update))
    assert by_label(build_graph(other, 1, "d")) == by_label(build_graph(resolved, 1, "d"))


def test_naming_the_recipes_experts_is_the_same_run(resolved: ResolvedAblation) -> None:
    named = resolved.arms["soft"].model_copy(update={"experts": resolved.recipe.mixture.experts})
    other = replace(resolved, arms={**resolved.arms, "soft": named})
    assert by_label(build_graph(other, 1, "d")) == by_label(build_graph(resolved, 1, "d"))
    twins = replace(resolved, arms={**resolved.arms, "again": named})
    with pytest.raises(
        SpecError, match=r"ablation\.yaml:\d+:1: arms\.again must differ from arms\.soft.*same run"
    ):
        build_graph(twins, 1, "digest")


def test_dense_arm_trains_from_the_seed_model(resolved: ResolvedAblation) -> None:
    dense = replace(resolved, arms={**resolved.arms, "dense": DenseMethod(method="dense")})
    graph = build_graph(dense, 1, "digest")
    stage = graph.arm("dense", 0)
    assert [need.name for need in graph.needs(stage)] == ["tokenizer", "seed_model"]


def test_sparse_upcycling_reads_the_seed_model_alone(resolved: ResolvedAblation) -> None:
    method = SparseUpcyclingMethod(
        method="sparse_upcycling",
        num_experts=8,
        layers="every_other",
        ffn_router=TopKRouter(score="softmax", select="top_k", top_k=2, renormalize=False),
    )
    arms = {"sparse": method, "wider": method.model_copy(update={"num_experts": 16})}
    ablation = resolved.ablation.model_copy(update={"baseline": "sparse"})
    graph = build_graph(replace(resolved, ablation=ablation, arms=arms), 1, "digest")
    assert counts(graph)["upcycle"] == counts(graph)["mixture"] == 2
    assert "expert" not in counts(graph)
    (upcycle,) = [s for s in graph.stages.values() if (s.name, s.arm) == ("upcycle", "sparse")]
    assert [need.name for need in graph.needs(upcycle)] == ["seed_model", "tokenizer"]
    assert upcycle.settings["experts"] == ["seed_model"]


def test_lory_reads_its_experts_or_the_seed_model_alone(resolved: ResolvedAblation) -> None:
    method = LoryMethod(method="lory", segment_len=8, first_segment="uniform")
    arms = {"btx": method, "copies": method.model_copy(update={"num_experts": 4})}
    graph = build_graph(replace(resolved, arms=arms), 1, "digest")
    upcycles = {s.arm: graph.needs(s) for s in graph.stages.values() if s.name == "upcycle"}
    read = {arm: [need.name for need in needs] for arm, needs in upcycles.items()}
    assert read == {
        "btx": ["seed_model", "expert", "expert", "expert", "tokenizer"],
        "copies": ["seed_model", "tokenizer"],
    }


def test_mixture_arms_read_the_same_batches(resolved: ResolvedAblation) -> None:
    graph = build_graph(resolved, 2, "digest")
    for replicate in (0, 1):
        specs = [graph.arm(arm, replicate).spec for arm in resolved.arms]
        assert {(s["rng_seed"], str(s["mix"]), str(s["size"])) for s in specs} == {
            (replicate, str(specs[0]["mix"]), str(specs[0]["size"]))
        }
