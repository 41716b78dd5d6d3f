"""The data axes: what an arm may say that it reads, and what has no effect."""

import json

import pytest
from pydantic import ValidationError

from bam_lab.errors import SpecError
from bam_lab.spec.corpus import DomainSource
from bam_lab.spec.data import DataSpec, Similar
from bam_lab.spec.load import load_ablation
from bam_lab.spec.resolved import ResolvedAblation

FIXTURE = "tests/fixtures/ablation.yaml"
TOP_2 = {"score": "softmax", "select": "top_k", "top_k": 2, "renormalize": False}
COPIES = {"method": "sparse_upcycling", "num_experts": 4, "layers": "all", "ffn_router": TOP_2}
WEB = "corpus.domains.web=" + json.dumps(
    {
        "title": "web",
        "min_megabytes": 0.001,
        "max_megabytes": 1.0,
        "hold_out": {"valid": 0.0, "test": 1.0},
        "sources": [
            {
                "kind": "files",
                "name": "pages",
                "folder": "corpus",
                "pattern": "*.md",
                "licence": "CC0-1.0",
                "max_megabytes": 1.0,
            }
        ],
    }
)


def resolved(*overrides: str) -> ResolvedAblation:
    return load_ablation(FIXTURE, overrides=overrides)


def problems(*overrides: str) -> str:
    with pytest.raises(SpecError) as error:
        resolved(*overrides)
    return str(error.value)


def soft(**data: object) -> str:
    return f"arms.soft.data={json.dumps(data)}"


def test_printed_weights_are_scaled_to_sum_to_1() -> None:
    """BTX's mixture phase, arXiv:2403.07816: percentages."""
    printed = {"math": 30.16, "code": 40.31, "general": 10.30, "law": 19.23}
    mix = resolved(soft(mix=printed)).reads("soft").mix
    assert mix is not None
    assert mix == pytest.approx({name: weight / 100 for name, weight in printed.items()})
    assert sum(mix.values()) == pytest.approx(1, abs=1e-15)
    raw = json.dumps(printed)
    assert resolved(f"recipe.mixture.mix={raw}").reads("soft").mix == mix
    assert resolved(f"recipe.seed_model.mix={raw}").recipe.seed_model.mix == mix


def test_weights_that_sum_to_1_keep_every_bit() -> None:
    mix = {"a": 0.1, "b": 0.2, "c": 0.7 - 2e-7}
    assert DataSpec(mix=mix).mix == mix
    with pytest.raises(ValidationError, match="finite sum above 0"):
        DataSpec(mix={"a": 1e308, "b": 1e308})


def test_what_an_arm_leaves_out_is_the_recipes() -> None:
    found = resolved(soft(general_share=0.2), "recipe.general_repeats=4")
    assert found.reads("soft").general_share == 0.2
    assert found.reads("btx").general_share == found.recipe.expert.general_share == 0.1
    assert found.reads("soft").general_repeats == found.reads("btx").general_repeats == 4
    assert found.reads("soft").mix == found.recipe.mixture.mix
    assert found.reads("soft").order == "random"


def test_common_data_is_every_arms_that_has_none() -> None:
    found = resolved('common.data={"order": "similar"}', soft(general_share=0.5))
    assert found.reads("btx").order == Similar()
    assert found.reads("soft").order == "random"
    assert found.reads("soft").general_share == 0.5


def test_an_order_is_a_word_or_its_settings() -> None:
    order = resolved(soft(order={"embedder": "minilm", "neighbours": 5})).reads("soft").order
    assert order == Similar(embedder="minilm", neighbours=5)
    assert resolved(soft(order="similar")).reads("soft").order == Similar()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (soft(order="simlar"), "arms.soft.data.order must be random, similar or a mapping, got"),
        (soft(order=5), "arms.soft.data.order must be random, similar or a mapping, got 5"),
        (soft(order={"traversal": "greedy"}), "order.traversal must be 'min_degree' or 'simple'"),
        (soft(order={"neighbors": 5}), "order.neighbors must be a known key. Did you mean `neigh"),
        (
            soft(order={"embedder": "minilm", "dimensions": 64}),
            "data.order is wrong: dimensions has no effect with an encoder",
        ),
        (soft(general_share=1.5), "arms.soft.data.general_share must be <= 1.0, got 1.5"),
        (soft(general_repeats=0), "arms.soft.data.general_repeats must be > 0, got 0"),
        (soft(share=0.1), "arms.soft.data.share must be a known key."),
        (soft(general_share=None), "general_share must not be null: what is left out is the rec"),
        (soft(), "arms.soft.data must hold at least one setting"),
        ("arms.soft.data=similar", "arms.soft.data must be a mapping, got 'similar'"),
        ("common.data.mix={code: -1.0}", "common.data.mix.code must be >= 0"),
        (soft(mix={}), "arms.soft.data.mix is wrong: the weights must have a finite sum above 0"),
        (soft(mix={"cod": 1.0}), "mix.cod must be a domain of the corpus, got 'cod'. Did you mean"),
        (soft(general_repeats=2, order="similar"), "is a cluster, not a sample"),
    ],
)
def test_a_bad_setting_names_itself(override: str, message: str) -> None:
    assert message in problems(override)


def test_arms_that_read_something_wrong_are_not_called_the_same() -> None:
    told = problems("arms.copy={method: btx, data: {general_share: 1.5}}")
    assert "arms.copy.data.general_share must be <= 1.0, got 1.5" in told
    assert "got the same run" not in told
    assert "got the same run" in problems("arms.copy={method: btx}")


def test_a_pool_and_a_chain_do_not_meet_from_two_files() -> None:
    text = problems(soft(order="similar"), "recipe.general_repeats=2")
    assert "is a cluster, not a sample" in text and "(arm 'soft')" in text
    assert "is a cluster" in problems("recipe.order=similar", "recipe.general_repeats=2")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            (f"arms.soft={json.dumps(COPIES | {'data': {'general_share': 0.2}})}",),
            "arms.soft.data.general_share must have an effect: no branch but of the general domain "
            "'general' is read by arm 'soft'",
        ),
        (
            ("arms.soft={method: average, data: {mix: {code: 1.0}}}",),
            "arms.soft.data.mix must have an effect: there is no mixture phase by arm 'soft'",
        ),
        (
            (
                "arms.soft={method: average, experts: [code, law]}",
                soft(general_share=0.0, general_repeats=2),
            ),
            "arms.soft.data.general_repeats must have an effect: no phase reads the general domain",
        ),
        (
            (
                f"arms={json.dumps({'btx': COPIES, 'soft': COPIES | {'num_experts': 2}})}",
                "common={data: {general_share: 0.2}}",
            ),
            "common.data.general_share must have an effect: no branch but of the general domain",
        ),
        (
            ("common.data={order: similar}", soft(order="random"), "arms.btx.data={order: random}"),
            "common.data must have an effect: every arm has its own",
        ),
        (
            ("recipe.expert.domains=[general]", "recipe.mixture.experts=[seed_model, general]"),
            "expert.general_share must be 0 where no domain but the general one, 'general'",
        ),
        (
            (
                "recipe.general_repeats=2",
                "recipe.expert.general_share=0",
                "recipe.mixture.mix={code: 1.0}",
            ),
            "general_repeats must have an effect: no phase reads the general domain 'general'",
        ),
    ],
)
def test_a_setting_without_effect(overrides: tuple[str, ...], message: str) -> None:
    assert message in problems(*overrides)


def test_common_data_may_concern_some_arms_alone() -> None:
    copies = json.dumps(COPIES)
    found = resolved(f"arms.soft={copies}", "common.data={general_share: 0.2}")
    assert found.reads("btx").general_share == 0.2


@pytest.mark.parametrize(
    "data", [{"general_share": 0.1}, {"mix": {n: 2.5 for n in ("general", "code", "law", "math")}}]
)
def test_what_the_recipe_says_already_is_the_same_run(data: dict[str, object]) -> None:
    again = json.dumps({"method": "btx", "data": data})
    assert "arms.again must differ from arm 'btx'" in problems(f"arms.again={again}")
    resolved('arms.again={"method": "btx", "data": {"general_repeats": 2}}')


def test_a_domain_held_out_as_a_whole_is_never_trained_on() -> None:
    assert "web" in resolved(WEB).corpus.domains
    for override, place in (
        (soft(mix={"web": 1.0}), "arms.soft.data.mix.web"),
        ("recipe.expert.domains=[web, code, law, math]", "expert.domains.0"),
        ("recipe.mixture.mix.web=0.5", "mixture.mix.web"),
        ("recipe.seed_model.mix.web=0.5", "seed_model.mix.web"),
    ):
        text = problems(WEB, override)
        assert f"{place} must be a domain that is trained on, got 'web'" in text
    assert "which is held out as a whole" in problems(WEB, "corpus.general=web")


def own_domain(**changes: object) -> DomainSource:
    source = {
        "kind": "files",
        "name": "poems",
        "folder": "/poems",
        "pattern": "*.txt",
        "licence": "mine",
        "max_megabytes": 1.0,
    }
    raw = {
        "title": "poems",
        "min_megabytes": 0.001,
        "max_megabytes": 1.0,
        "hold_out": {"valid": 0.1, "test": 0.1},
        "sources": (source,),
    }
    return DomainSource.model_validate(raw | changes)


def test_a_domain_of_the_users_own_is_branched_mixed_and_marked() -> None:
    override = soft(mix={"code": 3.0, "law": 1.0})
    found = load_ablation(FIXTURE, overrides=[override], added={"poetry": own_domain()})
    assert found.recipe.expert.domains == ("code", "law", "math", "poetry")
    assert found.recipe.mixture.experts == ("seed_model", "code", "law", "math", "poetry")
    assert found.recipe.mixture.mix == pytest.approx(
        dict.fromkeys(("general", "code", "law", "math", "poetry"), 0.2)
    )
    assert found.reads("soft").mix == pytest.approx({"code": 0.5, "law": 1 / 6, "poetry": 1 / 3})
    assert found.corpus.domains["poetry"].title == "poems"
    assert found.overridden and found.changes == (f"--set {override}", "--domain poetry")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("code", {}, "--domain code: must be new to the corpus"),
        ("seed_model", {}, "--domain seed_model: must not be the name of another dense model"),
        ("code.1of2", {}, "must not be the name of another dense model"),
        ("Poetry", {}, "--domain Poetry: must be lower-case letters"),
        ("poetry", {"hold_out": {"valid": 0.5, "test": 0.5}}, "must have text to train on"),
    ],
)
def test_a_domain_that_cannot_be_added(name: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load_ablation(FIXTURE, added={name: own_domain(**changes)})


def test_an_added_source_must_have_its_own_name() -> None:
    source = own_domain().sources[0].model_copy(update={"name": "tales"})
    with pytest.raises(SpecError, match="source names must differ, got tales"):
        load_ablation(FIXTURE, added={"poetry": own_domain(sources=(source,))})


def test_what_an_arm_reads_in_words() -> None:
    mix = {"code": 30.16, "law": 40.31, "math": 29.53}
    assert DataSpec(general_share=0.05, general_repeats=8, mix=mix).words() == (
        "general share 5%, general text 8 times, mix code 30.16% law 40.31% math 29.53%"
    )
    assert DataSpec(general_repeats=1, order="random").words() == "general text once, random order"
    assert DataSpec(order=Similar(embedder="minilm")).words() == "similar order (minilm)"
