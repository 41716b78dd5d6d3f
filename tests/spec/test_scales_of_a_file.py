"""One ablation file at several scales: `at:`, and settings that multiply what a scale says."""

from pathlib import Path

import pytest

from bam_lab.errors import SpecError
from bam_lab.spec.load import load_ablation
from bam_lab.spec.methods import LoryMethod

TEXT = """\
schema: 1
id: mine
title: Mine
source: {paper: "arXiv:2405.03133"}
question: What then?
recipe: lory
scale: nano-lory
match: {on: tokens}
baseline: dense
replicates: {from: mixture, count: 2}
at:
  lory-0.3b: {common.segment_len: 256, scale.phases.mixture.tokens: 0.5x}
common: {segment_len: 16}
arms:
  dense: {method: dense}
  lory: {method: lory, first_segment: uniform, num_experts: 4}
report: {columns: [heldout/*/perplexity]}
"""


def written(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


def segment_len(path: str, scale: str | None, *overrides: str) -> int:
    method = load_ablation(path, scale=scale, overrides=overrides).arms["lory"]
    assert isinstance(method, LoryMethod)
    return method.segment_len


def test_what_stands_under_at_is_for_its_scale_alone(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT)
    assert segment_len(path, None) == segment_len(path, "nano-lory-short") == 16
    assert segment_len(path, "lory-0.3b") == 256
    plain = load_ablation("lory-main", scale="lory-0.3b").scale.phases.mixture.tokens
    found = load_ablation(path, scale="lory-0.3b")
    assert found.scale.phases.mixture.tokens == plain / 2
    assert not found.overridden


def test_at_holds_for_the_files_own_scale_too_and_set_has_the_last_word(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT.replace("  lory-0.3b:", "  nano-lory:").replace("256", "32"))
    assert segment_len(path, None) == 32
    assert segment_len(path, None, "common.segment_len=64") == 64


def test_a_setting_comes_after_at(tmp_path: Path) -> None:
    settings = "settings: {one: {}, four: {scale.phases.mixture.tokens: 4x}}\ncommon: {segment"
    path = written(tmp_path, TEXT.replace("common: {segment", settings))
    one, four = (
        child.scale.phases.mixture.tokens
        for _, child in load_ablation(path, scale="lory-0.3b").settings
    )
    assert four == 4 * one


def test_an_unknown_scale_and_an_unknown_key_are_told_with_their_place(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT.replace("lory-0.3b", "lory-0.4b"))
    with pytest.raises(SpecError, match=r"mine.yaml:12:3: at.lory-0.4b must name a file of conf"):
        load_ablation(path)
    path = written(tmp_path, TEXT.replace("common.segment_len: 256", "common.segment_length: 256"))
    load_ablation(path)
    with pytest.raises(SpecError, match=r"mine.yaml:12:15 \(at scale lory-0.3b\): common.segment_"):
        load_ablation(path, scale="lory-0.3b")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("scale: nano", "at.lory-0.3b.scale must change what suits a scale, not which one it is"),
        ("at.nano.title: a", "at.lory-0.3b.at.nano.title must change what suits a scale"),
        (
            "common: {}",
            "at.lory-0.3b.common.segment_len must have an effect, but common is written",
        ),
    ],
)
def test_what_has_no_effect_under_at_is_refused(tmp_path: Path, change: str, message: str) -> None:
    path = written(tmp_path, TEXT.replace(": 256,", f": 256, {change},"))
    with pytest.raises(SpecError) as error:
        load_ablation(path)
    assert message in str(error.value)


def test_a_scale_that_there_is_not_is_told_as_the_option(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"^--scale nanoo: scale must name a file of configs/scale"):
        load_ablation(written(tmp_path, TEXT), scale="nanoo")
    with pytest.raises(SpecError, match=r"--scale \.\./scale/nano: scale must name a file"):
        load_ablation(written(tmp_path, TEXT), scale="../scale/nano")


@pytest.mark.parametrize(
    ("override", "tokens"),
    [("0.5x", 4_864_000), ("2x", 19_456_000), ("1.000x", 9_728_000), ("9728000", 9_728_000)],
)
def test_a_multiple_is_of_what_the_file_says(tmp_path: Path, override: str, tokens: int) -> None:
    path = written(tmp_path, TEXT)
    found = load_ablation(path, overrides=[f"scale.phases.mixture.tokens={override}"])
    assert found.scale.phases.mixture.tokens == tokens


@pytest.mark.parametrize("override", ["x", "-1x", "2 x", "0x", "two"])
def test_what_is_no_multiple_is_refused(tmp_path: Path, override: str) -> None:
    path = written(tmp_path, TEXT)
    with pytest.raises(SpecError, match=r"scale\.phases\.mixture\.tokens"):
        load_ablation(path, overrides=[f"scale.phases.mixture.tokens={override}"])


def test_a_multiple_of_what_is_no_number_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT)
    with pytest.raises(SpecError, match=r"model\.block=2x: block must be"):
        load_ablation(path, overrides=["model.block=2x"])


SETTINGS = """\
settings:
  narrow: {}
  wide: {model.ffn_dim: 2x}
"""


def test_a_scale_may_change_what_a_setting_does(tmp_path: Path) -> None:
    text = TEXT.replace("256,", "256, settings.wide.model.ffn_dim: 3x,") + SETTINGS
    for scale, times in ((None, 2), ("lory-0.3b", 3)):
        narrow, wide = load_ablation(written(tmp_path, text), scale=scale).children
        assert wide.model.ffn_dim == times * narrow.model.ffn_dim


def test_a_path_into_an_arm_goes_into_what_common_lays_under_it(tmp_path: Path) -> None:
    """As the paths of `over:` do; the rest of it stays."""
    loss = "balance_loss: {form: gates, weight: 0.01}"
    router = "ffn_router: {score: softmax, select: top_k, top_k: 2, renormalize: true}"
    arm = f"top-2: {{method: sparse_upcycling, num_experts: 4, layers: all, {router}}}"
    text = TEXT.replace("{segment_len: 16}", "{segment_len: 16, " + loss + "}")
    text = text.replace("{method: dense}", "{method: dense}\n  " + arm)
    text += SETTINGS.replace("model.ffn_dim: 2x", "arms.top-2.balance_loss.weight: 0.5")
    narrow, wide = load_ablation(written(tmp_path, text)).children
    found = [child.arms[f"top-2@{child.setting}"].balance_loss for child in (narrow, wide)]
    assert [(loss.form, loss.weight) for loss in found] == [("gates", 0.01), ("gates", 0.5)]
