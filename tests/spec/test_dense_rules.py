"""What makes no sense in arms of whole models and in branches."""

import pytest

from bam_lab.errors import SpecError
from bam_lab.spec.load import load_ablation
from bam_lab.spec.parts import Part, domain_of, is_known, part_of

TOP_2 = "ffn_router: {score: softmax, select: top_k, top_k: 2, renormalize: false}"
BASE = """\
schema: 1
id: arms
title: arms
source: {paper: "arXiv:2408.08274", table: "6"}
question: Does it hold?
recipe: bam
scale: nano
match: {on: flops}
baseline: btx
replicates: {from: branch, count: 1}
arms:
  btx: {method: btx, ffn_router: {score: softmax, select: top_k, top_k: 1, renormalize: false}}
  arm: {ARM}
report:
  columns: [heldout/*/perplexity]
"""


@pytest.mark.parametrize(
    ("arm", "problem"),
    [
        ("method: dense, ffn_dim: 64", r"arms\.arm\.ffn_dim must not be given with start: seed_m"),
        (
            "method: dense, size_of: {arm: btx, params: total}",
            r"arms\.arm\.size_of must not be given with start: seed_model",
        ),
        (
            "method: dense, start: scratch, ffn_dim: 64, size_of: {arm: btx, params: total}",
            "must not be given with ffn_dim",
        ),
        (
            "method: dense, start: scratch, size_of: {arm: btc, params: total}",
            r"must name an arm that has its own size, got 'btc'\. Did you mean `btx`",
        ),
        (
            "method: dense, start: scratch, size_of: {arm: arm, params: total}",
            "must name an arm that has its own size, got 'arm'",
        ),
        ("method: average, experts: [code, code]", "must name each dense model once, got code"),
        ("method: average, experts: [code]", "must name at least two dense models"),
        ("method: average, experts: [code, lwa]", r"must be seed_model or a domain.*`law`"),
        (
            "method: average, experts: [code, law], weights: {code: 1.0, math: 1.0}",
            r"arms\.arm\.weights must name each of the experts code, law, got code, math",
        ),
        ("method: average, weights: {code: 0.0}", "must be > 0"),
        ("method: btm, top_k: 5", "must be at most the number of experts 4, got 5"),
        ("method: btm, top_k: 1, temperature: 0.2", "must not be given with top_k 1"),
        (
            f"method: btx, {TOP_2}, branch: {{lora: {{rank: 4, alpha: 8.0, targets: []}}}}",
            r"must have lora\.targets of ffn and attention, each once",
        ),
        (
            f"method: btx, {TOP_2}, branch: {{lora: {{rank: 512, alpha: 8.0, targets: [ffn]}}}}",
            r"must have a lora\.rank below",
        ),
        (
            f"method: btx, {TOP_2}, experts: [seed_model, seed_model], "
            "branch: {lora: {rank: 4, alpha: 8.0, targets: [ffn]}}",
            "must not be given where all experts are the seed model",
        ),
        (f"method: btx, {TOP_2}, experts: [math.1of2, math.3of2]", "got 'math.3of2'"),
        (f"method: btx, {TOP_2}, experts: [math.1of2, mat.2of2]", "got 'mat.2of2'"),
        (
            f"method: lory_to_sparse, segment_len: 48, first_segment: uniform, {TOP_2}",
            r"arms\.arm\.segment_len must divide",
        ),
        (
            f"method: lory_to_sparse, segment_len: 16, first_segment: uniform, num_experts: 4, "
            f"experts: [code, law], {TOP_2}",
            r"arms\.arm\.num_experts must not be given with experts",
        ),
        (
            "method: lory_to_sparse, segment_len: 16, first_segment: uniform, "
            "ffn_router: {score: softmax, select: top_k, top_k: 9, renormalize: false}",
            "must be at most the number of experts 4, got 9",
        ),
        (
            f"method: lory_to_sparse, segment_len: 16, first_segment: uniform, {TOP_2}, "
            "sparse_share: 1.0",
            r"arms\.arm\.sparse_share must be < 1",
        ),
    ],
)
def test_nonsense_is_told(tmp_path, arm, problem):
    path = tmp_path / "arms.yaml"
    path.write_text(BASE.replace("ARM", arm))
    with pytest.raises(SpecError, match=problem) as told:
        load_ablation(str(path))
    assert "arms.yaml:13" in str(told.value)


@pytest.mark.parametrize(
    "arm",
    [
        "method: dense, start: scratch, size_of: {arm: btx, params: active}",
        "method: average, experts: [code, law], weights: {code: 1, law: 3.0}",
        "method: btm, top_k: 2, temperature: 0.2",
        f"method: btx, {TOP_2}, experts: [math, math.1of2, math.2of2]",
        f"method: btx, {TOP_2}, branch: {{lora: {{rank: 4, alpha: 8, targets: [ffn]}}}}",
        f"method: lory_to_sparse, segment_len: 16, first_segment: bos, {TOP_2}",
    ],
)
def test_sense_is_taken(tmp_path, arm):
    path = tmp_path / "arms.yaml"
    path.write_text(BASE.replace("ARM", arm))
    assert load_ablation(str(path)).arms["arm"].method in arm


def test_names_of_parts():
    assert part_of("math.2of3") == Part("math", 2, 3)
    assert [part_of(name) for name in ("math", "math.1of1", "math.3of2", "math.0of2")] == [None] * 4
    assert [domain_of(name) for name in ("math.1of2", "math", "v1.1of2")] == ["math", "math", "v1"]
    assert is_known("math.1of2", ["math"]) and is_known("math", ["math"])
    assert not is_known("law.1of2", ["math"]) and not is_known("math.3of2", ["math"])
