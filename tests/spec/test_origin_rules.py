"""Where a mixture's weights come from: names of experts, models read, settings that contradict."""

import pytest

from bam_lab.errors import SpecError
from bam_lab.spec.experts import experts_of, num_experts_of, num_sources, sources_of
from bam_lab.spec.load import load_ablation
from tests.model.cases import EXPERTS, METHODS, SOFT, bam, btx, sparse_upcycling

RECIPE = ("seed_model", "code", "law", "math")
SPLIT = btx(SOFT, expert_layout="split", chunks=2, experts=("code", "seed_model"))
BLENDED = btx(SOFT, expert_layout="blended")
SCRATCH = "start: scratch"
TOP_2 = "ffn_router: {score: softmax, select: top_k, top_k: 2, renormalize: false}"
LORY = "method: lory, segment_len: 64, first_segment: uniform"


@pytest.mark.parametrize(
    ("method", "experts", "sources"),
    [
        (btx(SOFT), RECIPE, RECIPE),
        (bam("shared", SOFT, experts=("law", "code")), ("law", "code"), ("law", "code")),
        (
            SPLIT,
            ("code[1/2]", "code[2/2]", "seed_model[1/2]", "seed_model[2/2]"),
            ("code", "seed_model"),
        ),
        (BLENDED, tuple(f"blend[{i}/4]" for i in (1, 2, 3, 4)), RECIPE),
        (sparse_upcycling("all"), ("seed_model",) * 4, ("seed_model",)),
        (sparse_upcycling("all", start="scratch"), ("scratch",) * 4, ()),
        (
            sparse_upcycling("all", num_experts=2, granularity=2),
            ("seed_model[1/2]", "seed_model[2/2]") * 2,
            ("seed_model",),
        ),
        (
            sparse_upcycling("all", copied_experts=3),
            ("seed_model", "seed_model", "seed_model", "scratch"),
            ("seed_model",),
        ),
        (METHODS["lory-scratch-uniform"], ("scratch",) * 4, ()),
    ],
)
def test_experts_and_the_models_that_are_read(method, experts, sources):
    assert experts_of(method, RECIPE) == experts
    assert sources_of(method, RECIPE) == sources
    assert num_experts_of(method, len(sources)) == len(experts)
    assert num_sources(method, len(experts)) == len(sources)


@pytest.mark.parametrize("name", METHODS)
def test_the_number_of_experts_gives_the_number_of_models(name):
    method = METHODS[name]
    assert num_experts_of(method, num_sources(method, EXPERTS)) == EXPERTS


@pytest.mark.parametrize(
    ("arm", "problem"),
    [
        ("method: btx, expert_layout: split", "chunks must be given with expert_layout: split"),
        ("method: btx, chunks: 2", "chunks must be given with expert_layout: split, and only"),
        ("method: btx, expert_layout: split, chunks: 5", "chunks must divide ffn_dim"),
        (
            "method: btx, expert_layout: blended, experts: [code, law, math]",
            "must not be blended where the number of experts 3 does not divide ffn_dim",
        ),
        (
            "method: btx, expert_layout: blended, experts: [code, law], "
            "ffn_router: {score: softmax, select: top_k, top_k: 3, renormalize: true}",
            "top_k must be at most the number of experts 2, got 3",
        ),
        (f"{LORY}, {SCRATCH}", "start must not be scratch where dense experts are mixed"),
        (
            f"{LORY}, {SCRATCH}, experts: [code, law]",
            "start must not be scratch where dense experts are mixed",
        ),
        (
            "method: sparse_upcycling, num_experts: 4, layers: all, copy_noise_std: 0.1, "
            f"{SCRATCH}",
            "copy_noise_std must not be given with start: scratch, got 0.1",
        ),
        (
            "method: btx, frozen_experts: true, experts: [code, code]",
            "frozen_experts must be false where every expert is code",
        ),
        (
            f"method: sparse_upcycling, num_experts: 4, layers: all, reinit_share: 0.5, {SCRATCH}",
            "reinit_share must not be given with start: scratch, got 0.5",
        ),
        (
            "method: sparse_upcycling, num_experts: 4, layers: all, copied_experts: 4",
            "copied_experts must be below num_experts 4, got 4",
        ),
        (
            "method: sparse_upcycling, num_experts: 4, layers: all, granularity: 4",
            "granularity must divide top_k 2, got 4",
        ),
        (
            "method: sparse_upcycling, num_experts: 4, layers: all, reinit_share: 1.5",
            "reinit_share must be <= 1",
        ),
        (f"method: btx, {SCRATCH}", "start must be a known key"),
        ("method: sparse_upcycling, num_experts: 4, layers: all, frozen_experts: true", "known"),
    ],
)
def test_what_makes_no_sense_is_refused(arm, problem):
    overrides = [
        f"arms.soft={{{arm}{'' if 'ffn_router' in arm or 'lory' in arm else ', ' + TOP_2}}}"
    ]
    with pytest.raises(SpecError) as error:
        load_ablation("bam-attention-routing", overrides=overrides)
    assert problem in str(error.value)


def test_a_split_arm_may_choose_more_parts_than_there_are_models():
    router = "{score: softmax, select: top_k, top_k: 6, renormalize: true}"
    arm = f"{{method: btx, expert_layout: split, chunks: 2, ffn_router: {router}}}"
    resolved = load_ablation("bam-attention-routing", overrides=[f"arms.soft={arm}"])
    assert len(experts_of(resolved.arms["soft"], resolved.recipe.mixture.experts)) == 8
