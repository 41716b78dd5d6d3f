"""Graphs of arms that read different text: what is shared, and what each stage is told."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bam_lab.data.tokens.draws import drawn, draws
from bam_lab.errors import SpecError
from bam_lab.run.graph import build_graph
from bam_lab.run.stage import Graph, Stage
from bam_lab.run.stage_specs import pools_of
from bam_lab.spec.data import DataSpec
from bam_lab.spec.load import load_ablation
from bam_lab.spec.recipe import RecipeSpec
from bam_lab.spec.resolved import ResolvedAblation

Data = dict[str, dict[str, Any]]


@pytest.fixture
def resolved(fixture_ablation: Path) -> ResolvedAblation:
    return load_ablation(str(fixture_ablation))


def reading(resolved: ResolvedAblation, **data: dict[str, Any]) -> Graph:
    """Return the graph of BTX arms that read other data each."""
    arms = dict.fromkeys(("btx", *data), resolved.arms["btx"])
    specs = {arm: DataSpec(**own) for arm, own in data.items()}
    return build_graph(replace(resolved, arms=arms, data=specs), 1, "digest")


def named(graph: Graph, name: str) -> dict[str, Stage]:
    return {s.label.removesuffix(" r0"): s for s in graph.stages.values() if s.name == name}


def experts(graph: Graph, arm: str) -> list[str]:
    """Return the labels of the dense models that an arm's mixture is made of."""
    upcycle = graph.stages[graph.arm(arm, 0).inputs["upcycle"]]
    return [need.label.removesuffix(" r0") for need in graph.needs(upcycle)][:-1]


def test_a_share_is_other_branches_and_the_same_mixture_phase(resolved: ResolvedAblation) -> None:
    graph = reading(resolved, more={"general_share": 0.5}, none={"general_share": 0.0})
    assert len(named(graph, "seed_model")) == 1
    assert len(named(graph, "expert")) == 9
    assert experts(graph, "btx")[1:] == ["expert code", "expert law", "expert math"]
    assert experts(graph, "more")[1] == "expert code with 50% general"
    mixes = {label: stage.spec["mix"] for label, stage in named(graph, "expert").items()}
    assert mixes["expert code"] == {"code": 0.9, "general": 0.1}
    assert mixes["expert code with 50% general"] == {"code": 0.5, "general": 0.5}
    assert mixes["expert code with 0% general"] == {"code": 1.0}
    phases = named(graph, "mixture").values()
    assert len({str(s.spec["mix"]) + str(s.spec["rng_seed"]) for s in phases}) == 1
    settings = graph.stages[graph.arm("more", 0).inputs["upcycle"]].settings
    assert settings["experts"][:2] == ["seed_model", "code with 50% general"]


def test_a_mix_is_the_same_branches_and_another_mixture_phase(resolved: ResolvedAblation) -> None:
    graph = reading(resolved, half={"mix": {"code": 1.0, "law": 1.0}})
    assert experts(graph, "half") == experts(graph, "btx")
    one, other = (graph.arm(arm, 0) for arm in ("btx", "half"))
    assert one.inputs["upcycle"] == other.inputs["upcycle"]
    assert [(stage.label, stage.role) for stage in graph.again] == [
        ("upcycle half r0", "upcycle"),
        ("evaluate upcycle half r0", "step-0"),
    ]
    assert other.spec["mix"] == {"code": 0.5, "law": 0.5}
    assert one.spec["mix"] == resolved.recipe.mixture.mix


def test_equal_branches_of_two_arms_are_trained_once(resolved: ResolvedAblation) -> None:
    graph = reading(
        resolved,
        one={"general_share": 0.2, "mix": {"code": 1.0}},
        two={"general_share": 0.2, "mix": {"law": 1.0}},
    )
    assert len(named(graph, "expert")) == 6
    assert experts(graph, "one") == experts(graph, "two")


def test_an_arm_without_data_of_its_own_keeps_its_stages(resolved: ResolvedAblation) -> None:
    plain = build_graph(resolved, 1, "digest")
    own = {"soft": DataSpec(general_share=0.3, general_repeats=2)}
    changed = build_graph(replace(resolved, data=own), 1, "digest")
    kept = {"btx", None}
    assert {f for f, s in plain.stages.items() if s.arm in kept} <= changed.stages.keys()
    assert plain.arm("soft", 0).fingerprint not in changed.stages


def test_two_arms_that_read_the_same_are_one_run(resolved: ResolvedAblation) -> None:
    with pytest.raises(SpecError, match=r"arms\.again must differ from arms\.btx, got the same"):
        reading(resolved, again={"general_share": 0.1, "order": "random"})


def test_a_phase_reads_a_pool_of_general_text_as_often_as_it_says(
    resolved: ResolvedAblation,
) -> None:
    graph = reading(resolved, often={"general_repeats": 3})
    labels = experts(graph, "often")
    assert labels[1] == "expert code with general text read 3 times"
    for stage in (named(graph, "expert")[labels[1]], graph.arm("often", 0)):
        count = stage.spec["steps"] * stage.spec["size"]["batch_sequences"]
        general = drawn(dict(sorted(stage.spec["mix"].items())), count)["general"]
        assert stage.spec["pools"] == {"general": math.ceil(general / 3)}
    assert "pools" not in graph.arm("btx", 0).spec
    assert "pools" not in named(graph, "seed_model")["seed_model"].spec


def test_the_recipe_may_say_it_for_all(resolved: ResolvedAblation) -> None:
    raw = resolved.recipe.model_dump(by_alias=True) | {"general_repeats": 2}
    recipe = RecipeSpec.model_validate(raw)
    graph = build_graph(replace(resolved, recipe=recipe), 1, "digest")
    assert set(named(graph, "expert")) == {"expert code", "expert law", "expert math"}
    assert all("pools" in stage.spec for stage in named(graph, "expert").values())


def test_a_pool_that_the_corpus_cannot_have_is_refused(resolved: ResolvedAblation) -> None:
    general = resolved.corpus.domains["general"].model_copy(update={"max_megabytes": 0.0005})
    domains = {**resolved.corpus.domains, "general": general}
    small = replace(resolved, corpus=resolved.corpus.model_copy(update={"domains": domains}))
    with pytest.raises(SpecError, match=r"arms\.once: general_repeats must be larger where the co"):
        reading(small, once={"mix": {"general": 1.0}, "general_repeats": 1})
    reading(small, often={"mix": {"general": 1.0}, "general_repeats": 6})


def events(weights: dict[str, float], count: int) -> Iterable[str]:
    """Return the first `count` draws the slow way: all of them, sorted."""
    all_draws = [
        ((n + 0.5) / weight, domain) for domain, weight in weights.items() for n in range(count + 1)
    ]
    return [domain for _, domain in sorted(all_draws)][:count]


@pytest.mark.parametrize(
    "mix", [{"code": 0.9, "general": 0.1}, {"general": 0.25, "a": 0.3, "b": 0.45}, {"general": 1.0}]
)
@pytest.mark.parametrize("count", [0, 1, 7, 500])
def test_pools_are_counted_as_batches_draw(mix: dict[str, float], count: int) -> None:
    weights = dict(sorted(mix.items()))
    slow = Counter(events(weights, count))
    assert drawn(weights, count) == {name: slow[name] for name in weights}
    assert [name for name, _ in draws(weights, 0, count)] == events(weights, count)
    wanted = {"general": math.ceil(slow["general"] / 4)} if slow["general"] else {}
    assert pools_of(mix, "general", 4, count) == wanted
    assert pools_of(mix, "general", None, count) == {}


def test_domains_held_out_as_a_whole_are_scored_and_nothing_else(
    resolved: ResolvedAblation,
) -> None:
    law = resolved.corpus.domains["law"]
    hold_out = law.hold_out.model_copy(update={"valid": 0.4, "test": 0.6})
    domains = {**resolved.corpus.domains, "web": law.model_copy(update={"hold_out": hold_out})}
    corpus = resolved.corpus.model_copy(update={"domains": domains})
    graph = build_graph(replace(resolved, corpus=corpus), 1, "digest")
    for stage in graph.stages.values():
        assert "web" not in stage.settings.get("domains", ())
        if stage.name == "evaluate":
            assert stage.spec["held_out_only"] == ["web"]
            assert "web" not in stage.spec["domains"]
    before = build_graph(resolved, 1, "digest")
    trained = {f for f, s in before.stages.items() if s.name not in ("evaluate", "corpus")}
    assert trained <= graph.stages.keys()


def test_an_order_is_made_once_for_all_that_read_in_it(resolved: ResolvedAblation) -> None:
    graph = reading(
        resolved,
        similar={"order": "similar"},
        mixed={"order": "similar", "mix": {"code": 1.0, "law": 1.0}},
        simple={"order": {"traversal": "simple"}},
    )
    orders = named(graph, "order")
    assert set(orders) == {"similar order", "similar order (simple)"}
    assert orders["similar order"].fingerprint != orders["similar order (simple)"].fingerprint
    for arm, label in (("similar", "similar order"), ("simple", "similar order (simple)")):
        phase = graph.arm(arm, 0)
        branch = graph.stages[graph.stages[phase.inputs["upcycle"]].inputs["expert1"]]
        assert branch.domain == f"code in {label}"
        assert phase.inputs["order"] == branch.inputs["order"] == orders[label].fingerprint
    assert experts(graph, "mixed") == experts(graph, "similar")
    assert "order" not in graph.arm("btx", 0).inputs
    assert "order" not in named(graph, "seed_model")["seed_model"].inputs
    stages = list(graph.stages.values())
    assert stages.index(orders["similar order"]) < stages.index(graph.arm("similar", 0))


def test_an_order_is_of_the_text_not_of_how_it_was_made(resolved: ResolvedAblation) -> None:
    elsewhere = resolved.corpus.model_copy(update={"general": "law"})
    graphs = [
        reading(replace(resolved, corpus=corpus), similar={"order": "similar"})
        for corpus in (resolved.corpus, elsewhere)
    ]
    assert graphs[0].corpus.fingerprint != graphs[1].corpus.fingerprint
    one, other = (next(iter(named(graph, "order").values())) for graph in graphs)
    assert one.fingerprint == other.fingerprint


def test_a_domain_that_only_an_arms_mix_names_is_evaluated_too() -> None:
    overrides = [
        "recipe.seed_model.mix={general: 1.0}",
        "recipe.expert.domains=[code, law]",
        "recipe.mixture.experts=[seed_model, code, law]",
        "recipe.mixture.mix={code: 1.0, law: 1.0}",
    ]
    resolved = load_ablation("tests/fixtures/ablation.yaml", overrides=overrides)
    graph = build_graph(resolved, 1, "digest")
    stage = next(s for s in graph.stages.values() if s.name == "evaluate")
    assert stage.spec["domains"] == ["general", "code", "law"]
    more = [*overrides, "arms.soft.data={mix: {math: 1.0, code: 3.0}}"]
    graph = build_graph(load_ablation("tests/fixtures/ablation.yaml", overrides=more), 1, "digest")
    stage = next(s for s in graph.stages.values() if s.name == "evaluate")
    assert stage.spec["domains"] == ["general", "code", "law", "math"]
    assert graph.arm("soft", 0).spec["mix"] == {"math": 0.25, "code": 0.75}
