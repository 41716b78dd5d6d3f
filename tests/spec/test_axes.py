"""Axes of arms and settings: what they expand to, and what they refuse."""

from pathlib import Path

import pytest

from bam_lab.cost.match import solve
from bam_lab.errors import SpecError
from bam_lab.run.graph import build_graph
from bam_lab.spec.load import load_ablation
from bam_lab.spec.methods import BAMMethod, BTXMethod, DenseMethod, LoryMethod
from bam_lab.spec.resolved import ResolvedAblation
from bam_lab.spec.routers import TopKRouter

HEAD = """\
schema: 1
id: mine
title: Mine
source: {paper: "arXiv:2408.08274"}
question: What then?
recipe: bam
scale: nano
match: {on: tokens}
baseline: dense
replicates: {from: mixture, count: 2}
report: {columns: [heldout/*/perplexity]}
common:
  ffn_router: {score: softmax, select: top_k, top_k: 1, renormalize: false}
"""


def resolved(folder: Path, text: str, *overrides: str, scale: str | None = None):
    path = folder / "mine.yaml"
    path.write_text(HEAD + text)
    return load_ablation(str(path), overrides=overrides, scale=scale)


def problems(folder: Path, text: str, *overrides: str, scale: str | None = None) -> str:
    with pytest.raises(SpecError) as error:
        resolved(folder, text, *overrides, scale=scale)
    return str(error.value)


def arms(found: ResolvedAblation) -> list[str]:
    return list(found.arms)


DENSE = "  dense: {method: dense}\n"
BTX = "  btx: {method: btx}\n"


def test_an_arm_with_an_axis_is_one_arm_for_each_value(tmp_path: Path) -> None:
    text = (
        "arms:\n"
        + DENSE
        + "  lory: {method: lory, first_segment: uniform, over: {segment_len: [16, 32, 64]}}\n"
        + BTX
    )
    found = resolved(tmp_path, text)
    assert arms(found) == ["dense", "lory-16", "lory-32", "lory-64", "btx"]
    for value in (16, 32, 64):
        method = found.arms[f"lory-{value}"]
        assert isinstance(method, LoryMethod) and method.segment_len == value
        assert found.axes[f"lory-{value}"] == {"segment_len": value}
        assert found.bases[f"lory-{value}"] == "lory"
    assert found.axes["dense"] == {} and found.bases["dense"] == "dense"


def test_axes_cross_in_the_order_written(tmp_path: Path) -> None:
    over = "{kv: {one: shared, many: per_expert}, z_loss: [0.0, 0.01, 1e-4]}"
    bam = (
        f"  bam: {{method: bam, attention_router: {{score: softmax, select: all}}, over: {over}}}\n"
    )
    found = resolved(tmp_path, "arms:\n" + DENSE + bam + BTX)
    assert arms(found)[1:7] == [
        "bam-one-0.0",
        "bam-one-0.01",
        "bam-one-0.0001",
        "bam-many-0.0",
        "bam-many-0.01",
        "bam-many-0.0001",
    ]
    method = found.arms["bam-many-0.01"]
    assert isinstance(method, BAMMethod)
    assert (method.kv, method.z_loss) == ("per_expert", 0.01)
    assert found.axes["bam-many-0.01"] == {"kv": "per_expert", "z_loss": 0.01}


def test_a_path_into_common_changes_the_arms_own_copy(tmp_path: Path) -> None:
    btx = "  btx: {method: btx, over: {ffn_router.top_k: {two: 2, three: 3}}}\n"
    found = resolved(tmp_path, "arms:\n" + DENSE + btx)
    two = found.arms["btx-two"]
    assert isinstance(two, BTXMethod)
    router = two.ffn_router
    assert isinstance(router, TopKRouter)
    assert (router.score, router.top_k, router.renormalize) == ("softmax", 2, False)


def test_a_case_changes_several_things_at_once(tmp_path: Path) -> None:
    cases = "{base: {}, frozen: {frozen_experts: true}, crawl: {data.general_share: 0.5}}"
    btx = f"  btx: {{method: btx, over: {{case: {cases}}}}}\n"
    found = resolved(tmp_path, "arms:\n" + DENSE + btx)
    assert arms(found) == ["dense", "btx-base", "btx-frozen", "btx-crawl"]
    frozen = found.arms["btx-frozen"]
    assert isinstance(frozen, BTXMethod) and frozen.frozen_experts
    assert found.reads("btx-crawl").general_share == 0.5
    assert found.axes["btx-frozen"] == {"case": "frozen"}


ARMS = "arms:\n" + DENSE + BTX


def test_every_arm_is_trained_under_every_setting(tmp_path: Path) -> None:
    found = resolved(tmp_path, ARMS + "settings: {parallel: {}, serial: {model.block: serial}}\n")
    assert arms(found) == ["dense@parallel", "btx@parallel", "dense@serial", "btx@serial"]
    assert [name for name, _ in found.settings] == ["parallel", "serial"]
    (_, one), (_, other) = found.settings
    assert (one.model.block, other.model.block) == ("parallel", "serial")
    assert other.ablation.baseline == "dense@serial"
    assert found.ablation.baseline == "dense"
    assert found.axes["btx@serial"] == {"setting": "serial"}
    assert found.bases["btx@serial"] == "btx"
    assert found.of("btx@serial") is other


def test_an_ablation_without_settings_is_its_own_only_one(tmp_path: Path) -> None:
    found = resolved(tmp_path, ARMS)
    assert found.settings == (("", found),)


def test_settings_may_be_the_points_of_axes(tmp_path: Path) -> None:
    over = (
        "{scale.phases.mixture.tokens: {short: 1024000, long: 2048000}, common.z_loss: [0.0, 0.1]}"
    )
    found = resolved(tmp_path, ARMS + f"settings: {{over: {over}}}\n")
    assert [name for name, _ in found.settings] == [
        "short-0.0",
        "short-0.1",
        "long-0.0",
        "long-0.1",
    ]
    assert found.axes["btx@long-0.1"] == {
        "scale.phases.mixture.tokens": 2048000,
        "common.z_loss": 0.1,
    }
    budgets = solve(found)
    assert budgets["btx@long-0.1"].steps == 2 * budgets["btx@short-0.1"].steps


def test_settings_share_the_stages_that_they_do_not_change(tmp_path: Path) -> None:
    over = "{scale.phases.mixture.tokens: {short: 1024000, long: 2048000}}"
    graph = build_graph(resolved(tmp_path, ARMS + f"settings: {{over: {over}}}\n"), 1, "digest")
    labels = [stage.label for stage in graph.stages.values()]
    assert labels.count("seed_model") == 1
    assert sum(label.startswith("expert ") for label in labels) == 3
    assert [label for label in labels if label.startswith("mixture")] == [
        "mixture dense@short r0",
        "mixture btx@short r0",
        "mixture dense@long r0",
        "mixture btx@long r0",
    ]
    upcycled = [(s.name, s.arm) for s in graph.again if s.name == "upcycle"]
    assert upcycled == [("upcycle", "btx@long")]


def test_a_setting_that_changes_the_model_has_its_own_seed_model(tmp_path: Path) -> None:
    text = ARMS + "settings: {parallel: {}, serial: {model.block: serial}}\n"
    graph = build_graph(resolved(tmp_path, text), 1, "digest")
    seeds = [stage.label for stage in graph.stages.values() if stage.name == "seed_model"]
    assert seeds == ["seed_model", "seed_model @serial"]
    keys = {stage.label: stage.fingerprint for stage in graph.stages.values()}
    assert graph.settings[keys["tokenizer"]] == ("parallel", "serial")
    assert graph.settings[keys["seed_model @serial"]] == ("serial",)


def test_an_arm_sized_by_another_is_sized_by_that_of_its_setting(tmp_path: Path) -> None:
    wide = "  wide: {method: dense, start: scratch, size_of: {arm: btx, params: total}}\n"
    text = ARMS + wide + "settings: {a: {}, b: {arms.btx.experts: [code, law]}}\n"
    found = resolved(tmp_path, text)
    wide_b = found.arms["wide@b"]
    assert isinstance(wide_b, DenseMethod) and wide_b.size_of and wide_b.size_of.arm == "btx@b"
    budgets = solve(found)
    assert budgets["wide@a"].params.total > budgets["wide@b"].params.total


def test_an_override_reaches_every_arm_and_setting_and_has_the_last_word(tmp_path: Path) -> None:
    text = (
        "arms:\n"
        + DENSE
        + "  lory: {method: lory, first_segment: uniform, over: {segment_len: [16, 32]}}\n"
        + BTX
    )
    found = resolved(tmp_path, text, "arms.lory.num_experts=2")
    assert [getattr(found.arms[arm], "num_experts", None) for arm in arms(found)[1:3]] == [2, 2]
    wrong = problems(
        tmp_path, ARMS + "settings: {a: {}, b: {model.block: serial}}\n", "model.block=serial"
    )
    assert "settings.b must differ from setting 'a', got the same runs" in wrong


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ("[16]", "mine.yaml:17:22: arms.btx.over must be a mapping from dotted paths to values"),
        ("{}", "arms.btx.over must be a mapping from dotted paths"),
        ("{seed_noise: [16]}", "arms.btx.over.seed_noise must have two values or more, got 1"),
        ("{seed_noise: 16}", "arms.btx.over.seed_noise must be a list or a mapping, got 16"),
        ("{ffn_router.: [1, 2]}", "must be a dotted path. Check its dots"),
        ("{case: [1, 2]}", "over.case must be a mapping from names to settings, got a list"),
        (
            "{case: {a: {}, b: 3}}",
            "over.case.b must be a mapping from dotted paths to values, got 3",
        ),
        (
            "{experts: [[code], [law]]}",
            "over.experts.0 must be a plain value, got a list. Name each",
        ),
        ("{z_loss: [0.1, null]}", "over.z_loss.1 must be a plain value, got null"),
        ("{z_loss: {a: null, b: 1.0}}", "over.z_loss.a must not be null. Leave it out"),
        ("{z_loss: {A B: 0.1, b: 1.0}}", "must have a name of lower-case letters"),
        ("{z_loss: [0.1, 0.1]}", "must give every combination its own name, got '0.1' twice"),
        (
            "{z_loss: [0.1, 0.2], case: {a: {}, b: {z_loss: 0.3}}}",
            "must be set by one axis, got two that set z_loss",
        ),
        ("{z_los: [0.1, 0.2]}", "arms.btx-0.1.z_los must be a known key. Did you mean"),
        (
            "{ffn_router.top_k: [1, two]}",
            "arms.btx-two.ffn_router.top_k must be an integer, got 'two'",
        ),
        ("{ffn_router.top_k.x: [1, 2]}", "must go through mappings. Check the path"),
        ("{case: {a: {}, b: {z_loss: 0.0}}}", "arms.btx-b must differ from arm 'btx-a'"),
    ],
)
def test_what_axes_refuse(tmp_path: Path, over: str, message: str) -> None:
    text = f"  router_init_std: 0.01\narms:\n{DENSE}  btx: {{method: btx, over: {over}}}\n"
    assert message in problems(tmp_path, text)


def test_a_problem_of_an_axis_stands_at_its_value(tmp_path: Path) -> None:
    text = (
        "arms:\n"
        + DENSE
        + "  btx:\n    method: btx\n    over:\n      z_loss: {small: 0.1, wrong: -1.0}\n"
    )
    assert "mine.yaml:19:28: arms.btx-wrong.z_loss must be >= 0" in problems(tmp_path, text)


def test_what_every_point_overwrites_has_no_effect(tmp_path: Path) -> None:
    btx = "  btx: {method: btx, z_loss: 0.5, over: {z_loss: [0.1, 0.2]}}\n"
    wrong = problems(tmp_path, "arms:\n" + DENSE + btx)
    assert "arms.btx.z_loss must have an effect: an axis sets it in every arm" in wrong


@pytest.mark.parametrize(
    ("over", "message"),
    [
        (
            "{case: {a: {z_loss: 0.1}, b: {ffn_router.top_k: 2, ffn_router: {select: all}}}}",
            "over.case.b.ffn_router.top_k must have an effect, but ffn_router is written over it",
        ),
        (
            f"{{z_loss: [{', '.join(str(n) for n in range(20))}], balance_loss.weight: "
            f"[{', '.join(str(n) for n in range(1, 21))}]}}",
            "over must give at most 256 combinations, got 400. Take values out.",
        ),
    ],
)
def test_what_an_axis_of_an_arm_refuses(tmp_path: Path, over: str, message: str) -> None:
    text = f"arms:\n{DENSE}  btx: {{method: btx, over: {over}}}\n"
    assert message in problems(tmp_path, text)


def test_a_name_twice_is_told_once(tmp_path: Path) -> None:
    told = problems(tmp_path, f"arms:\n{DENSE}  btx: {{method: btx, over: {{z_loss: [1, 1]}}}}\n")
    assert "must give every combination its own name, got '1' twice" in told
    assert "must not name an arm" not in told


def test_an_expanded_name_must_be_free(tmp_path: Path) -> None:
    lory = "  lory: {method: lory, first_segment: uniform, over: {segment_len: [16, 32]}}\n"
    lory += "  lory-16: {method: btx}\n"
    assert "must not name an arm that the file has, got 'lory-16'" in problems(
        tmp_path, "arms:\n" + DENSE + lory
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("3", "settings must be a mapping, got 3"),
        ("{one: {}}", "settings must hold two settings or more, got one"),
        ("{}", "settings must hold two settings or more, got none"),
        ("{a: {}, b: {}}", "settings.b must differ from setting 'a', got the same runs"),
        ("{a: {}, B: {model.block: serial}}", "settings.B must have a name of lower-case letters"),
        ("{a: {}, b: serial}", "settings.b must be a mapping from dotted paths to values"),
        ("{a: {}, b: {match.on: flops}}", "settings.b.match.on must change a part that settings"),
        (
            "{a: {}, b: {arms.btxx.kv: shared}}",
            "must change an arm of the file, got 'btxx'. Did you",
        ),
        ("{a: {}, b: {model.blok: serial}}", "(setting b): blok must be a known key"),
        ("{a: {}, b: {model.dim: -1}}", "mine.yaml:17:23 (setting b): dim must be > 0, got -1"),
        (
            "{a: {}, b: {scale: nano-eight, recipe: eight-domains}}",
            "settings.b must read the corpus of the other settings",
        ),
        (
            "{a: {}, b: {model.block: serial, arms.btx.method.x: 1}}",
            "mine.yaml:17:44 (setting b): the path must go through mappings",
        ),
        ("{a: {}, b: {scale.trial: true}}", "settings.b must differ from setting 'a', got the sam"),
        (
            "{a: {}, b: {scale.checkpoint_every: 7, scale.evaluation.tokens_per_domain: 9000}}",
            "settings.b must differ from setting 'a', got the same runs",
        ),
        (
            "{a: {}, b: {scale.phases.mixture.tokens: 4096001}}",  # as many steps
            "settings.b must differ from setting 'a', got the same runs",
        ),
        (
            "{a: {}, b: {common.ffn_router.top_k: 2, common.ffn_router: {select: all}}}",
            "settings.b.common.ffn_router.top_k must have an effect, but common.ffn_router is wri",
        ),
        (
            f"{{a: {{}}, b: {{scale.phases.mixture.tokens: {'9' * 400}x}}}}",
            "(setting b): phases.mixture.tokens must be an integer, got '9999",
        ),
        (
            "{a: {}, over: {model.block: [serial, parallel]}}",
            "settings.a must not stand beside `over`",
        ),
    ],
)
def test_what_settings_refuse(tmp_path: Path, settings: str, message: str) -> None:
    assert message in problems(tmp_path, ARMS + f"settings: {settings}\n")


def test_a_scale_of_a_setting_and_of_the_command_line_exclude_each_other(tmp_path: Path) -> None:
    text = ARMS + "settings: {a: {}, b: {scale: nano-short}}\n"
    assert arms(resolved(tmp_path, text))[-1] == "btx@b"
    wrong = problems(tmp_path, text, scale="nano")
    assert "settings.b.scale must not be given with --scale nano, which would have no" in wrong
