"""Resolving an ablation: names, overrides, and the rules that cross fields and files."""

from pathlib import Path

import pytest

from bam_lab.errors import SpecError
from bam_lab.spec.load import find_ablation, list_ablations, load_ablation
from bam_lab.spec.methods import BAMMethod, BTXMethod, LoryMethod, SparseUpcyclingMethod
from bam_lab.spec.routers import TopKRouter


def problems(reference: str, *overrides: str) -> str:
    with pytest.raises(SpecError) as error:
        load_ablation(reference, overrides=overrides)
    return str(error.value)


def edited(tmp_path: Path, old: str, new: str) -> str:
    """Return the path of a copy of the attention-routing ablation with one edit."""
    text = find_ablation("bam-attention-routing").read_text()
    assert old in text
    path = tmp_path / "bam-attention-routing.yaml"
    path.write_text(text.replace(old, new, 1))
    return str(path)


def test_id_alias_and_path_name_the_same_file() -> None:
    by_id = load_ablation("bam-attention-routing")
    assert load_ablation("bam-rebuttal-table-3") == by_id
    assert load_ablation(str(by_id.path)) == by_id


def test_an_alias_that_could_mean_several_lists_them_with_their_numbers_in_all_versions() -> None:
    assert problems("bam-table-6") == (
        "bam-table-6: must mean one ablation, could be bam-active-parameters (Table 5 in v2, "
        "Table 6 in submission, Table 6 in rebuttal) or bam-attention-routing (Table 6 in v2, "
        "Table 3 in rebuttal PDF). Name it."
    )


def test_common_goes_under_every_arm_that_knows_it() -> None:
    arms = load_ablation("bam-attention-routing").arms
    btx, soft = arms["btx"], arms["soft"]
    assert isinstance(btx, BTXMethod) and isinstance(soft, BAMMethod)
    assert btx.ffn_router == soft.ffn_router
    assert isinstance(soft.ffn_router, TopKRouter) and soft.ffn_router.top_k == 1
    assert btx.balance_loss == soft.balance_loss


def test_an_override_changes_one_value_and_marks_the_run() -> None:
    resolved = load_ablation(
        "bam-attention-routing",
        overrides=[
            "arms.soft.kv=per_expert",
            "model.block=serial",
            "scale.phases.mixture.tokens=819200",
        ],
    )
    soft = resolved.arms["soft"]
    assert isinstance(soft, BAMMethod) and soft.kv == "per_expert"
    assert resolved.model.block == "serial"
    assert resolved.scale.phases.mixture.tokens == 819200
    assert resolved.overridden
    assert not load_ablation("bam-attention-routing").overridden


def test_a_scale_switches_all_sizes_together() -> None:
    resolved = load_ablation("bam-perplexity", scale="bam-590m")
    assert resolved.model.dim == 1024
    assert resolved.scale.phases.mixture.tokens == 100_000_000_000


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["arms.soft.attention_router.top_k=2"],
            "arms.soft.attention_router.top_k must be a known",
        ),
        (["arms.top-2.attention_router.top_k=5"], "must be at most the number of experts 4, got 5"),
        (["common.ffn_router.renormalize=true"], "must be false with top_k 1, got true"),
        (["arms.soft.kv=sharde"], "arms.soft.kv must be 'per_expert' or 'shared', got 'sharde'"),
        (["arms.soft.kb=shared"], "must be a known key. Did you mean `kv`?"),
        (
            ["arms.soft.method=bamm"],
            "arms.soft.method must be a method, got 'bamm'. Did you mean `bam`?",
        ),
        (
            ["common.fnn_router=1"],
            "common.fnn_router must be known to some arm. Did you mean `ffn_r",
        ),
        (["baseline=btxx"], "baseline must be an arm, got 'btxx'. Did you mean `btx`?"),
        (["match.phase=mixture", "match.on=tokens"], "match.phase must not be given with"),
        (["recipe.mixture.mix={code: 0.0}"], "mixture.mix is wrong: the weights must have a "),
        (["recipe.mixture.mix.poetry=0.0"], "must be a domain of the corpus, got 'poetry'"),
        (["recipe.mixture.experts=[seed_model, cod]"], "got 'cod'. Did you mean `code`?"),
        (["model.vocab_size=256"], "vocab_size must hold the 256 bytes and end-of-text"),
        (["model.num_kv_heads=3"], "num_kv_heads must divide num_heads, got 3 and 2"),
        (
            ["model.positions=learned", "model.rope_theta=500.0"],
            "rope_theta must not be given with `positions: learned`, got 500: it has no effect",
        ),
        (["model.activation=relu"], "activation must be 'swiglu' or 'gelu', got 'relu'"),
        (["scale.phases.expert.tokens=4096"], "must give more optimizer steps than warmup_steps"),
        (
            [
                "scale.phases.mixture={tokens: 5120, batch_sequences: 4, peak_lr: 3e-3, "
                "warmup_steps: 8, final_lr_share: 0.1, threads: 1, schedule: stable_then_decay}"
            ],
            "must give more optimizer steps than warmup_steps 8 and the 2 of the decay together",
        ),
        (
            ["scale.phases.mixture.decay_share=0.5"],
            "must not be given with `schedule: cosine`, got 0.5",
        ),
        (["scale.phases.mixture.schedule=linear"], "schedule must be"),
        (["match.on"], "must be dotted.path=value"),
        (["model.dim=64", "match.on", "title"], "--set title: must be dotted.path=value"),
        (["scale=micro"], "--set scale: must be said by --scale NAME"),
        (["at.nano.model.dim=64"], "--set at.nano.model.dim: must not change `at`"),
        (["model.dim=64", "model.dim=32"], "--set model.dim: must have an effect, but model.dim"),
        (
            ["arms.soft.kv=shared", "arms.soft={}"],
            "--set arms.soft.kv: must have an effect, but ar",
        ),
        (["scale.phases.mixture.tokens=1" + "0" * 30], "the value must be plain YAML"),
        (["arms.soft.kv.a=1", "arms.soft.method.b=2"], "method.b=2: the path must go through map"),
        (["report.columns=[]"], "report.columns must hold at least 1 item, got 0. Add some."),
        (["report.published_at={bam-2b: []}"], "must name a table: without one `published` holds"),
        (["claims=[C1, C1]"], "claims.1 must stand once, got 'C1' again"),
        (["aliases=[a, a]"], "aliases.1 must stand once, got 'a' again"),
        (["aliases=[lory-main]"], "aliases.0 must be no ablation's id, got 'lory-main'"),
        (["aliases=[bam-attention-routing]"], "aliases.0 must be no ablation's id, got 'bam-att"),
        (["match.unmatched='  '"], "match.unmatched must say why arms may be ranked"),
        (["title=5"], "title must be a string, got 5. Quote it."),
        (["title=2020-13-45"], "the value must be plain YAML"),
        (["title=" + "[" * 3000], "the value must be plain YAML"),
        (["title=!!int '2'"], "the value must be plain YAML (no tags, no aliases,"),
        (["title=[&a [x, x], *a, *a]"], "the value must be plain YAML (no tags, no aliases,"),
        (["id=" + "a" * 81], "id must have at most 80 characters"),
        (["corpus.domains.law.sources=[]"], "domains.law is wrong: sources must name at least"),
        (["arms.soft.kv.deep=1"], "the path must go through mappings"),
        (["id=../../etc"], "id must be lower-case letters"),
        (["common.ffn_router.top_k=one"], "common.ffn_router.top_k must be an integer, got 'one'"),
        (["claims=[C1, C99]"], "must be an id of ablations/claims.yaml, got 'C99'"),
        (["report.published=bam-table-66"], "Did you mean `bam-table-6`?"),
        (["report.columns=[tasks/*/accuracy]"], "report.columns.0 must be heldout/*/perplexity"),
        (["report.published_at={bam-2b: bam-table-22}"], "Did you mean `bam-table-2`?"),
        (["scale.phases.expert.peak_lr=.inf"], "peak_lr must be a finite number, got inf"),
        (["scale.phases.expert.warmup_steps=-5"], "warmup_steps must be >= 0, got -5"),
        (["scale.optimizer.beta1=1.0"], "beta1 must be < 1.0, got 1.0"),
        (["answers=[E1]"], "must be a question of ablations/answers.yaml, A1 to D3, got 'E1'"),
        (["common.ffn_router={score: softmax, select: all}"], "the loss has no effect"),
    ],
)
def test_a_bad_override_names_itself(overrides: list[str], message: str) -> None:
    text = problems("bam-attention-routing", *overrides)
    assert message in text
    assert "--set" in text or message == "the loss has no effect"  # named where the loss stands


def test_learned_positions_turn_nothing() -> None:
    """Neither an angle's base nor an even head is asked for."""
    overrides = ["model.positions=learned", "model.head_dim=33"]
    assert load_ablation("bam-attention-routing", overrides=overrides).model.positions == "learned"
    assert "must be even for rotary positions, got 33" in problems(
        "bam-attention-routing", "model.head_dim=33"
    )


def test_a_mixture_of_ungated_ffns_is_refused_at_its_arm() -> None:
    text = problems("bam-attention-routing", "model.activation=gelu")
    assert "arms.btx.method must be dense where the model's activation is gelu, got btx" in text


def test_a_scale_without_a_name_is_told() -> None:
    with pytest.raises(SpecError, match="scale must name a file of configs/scale, got ''"):
        load_ablation("bam-attention-routing", scale="")


SPARSE = (
    "arms.btx={method: sparse_upcycling, num_experts: 4, layers: every_other, "
    "ffn_router: {score: softmax, select: top_k, top_k: 2, renormalize: false}}"
)


def test_sparse_upcycling_is_an_arm() -> None:
    sparse = load_ablation("bam-attention-routing", overrides=[SPARSE]).arms["btx"]
    assert isinstance(sparse, SparseUpcyclingMethod)
    assert (sparse.num_experts, sparse.layers, sparse.copy_noise_std) == (4, "every_other", 0.0)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["arms.btx.layers=second"],
            "must be all, every_other or last_<n>, such as last_6, got 's",
        ),
        (
            ["arms.btx.layers=last_0"],
            "must be all, every_other or last_<n>, such as last_6, got 'l",
        ),
        (["arms.btx.layers=last_2"], "must leave a dense and a routed layer of 2, got last_2"),
        (["model.num_layers=1"], "must leave a dense and a routed layer of 1, got every_other"),
        (["arms.btx.num_experts=1"], "arms.btx.num_experts must be >= 2, got 1"),
        (["arms.btx.ffn_router.top_k=5"], "must be at most the number of experts 4, got 5"),
        (["arms.btx.experts=[code]"], "arms.btx.experts must be a known key"),
        (["arms.btx.copy_noise_std=-1.0"], "arms.btx.copy_noise_std must be >= 0.0, got -1.0"),
    ],
)
def test_a_bad_setting_of_sparse_upcycling_names_itself(overrides: list[str], message: str) -> None:
    assert message in problems("bam-attention-routing", SPARSE, *overrides)


LORY = "arms.soft={method: lory, segment_len: 64, first_segment: own_mean}"
COPIES = "arms.soft={method: lory, segment_len: 64, first_segment: own_mean, num_experts: 4}"


def test_lory_is_an_arm() -> None:
    lory = load_ablation("bam-attention-routing", overrides=[LORY]).arms["soft"]
    assert isinstance(lory, LoryMethod)
    assert (lory.segment_len, lory.num_experts, lory.experts) == (64, None, ())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([LORY, "arms.soft.segment_len=60"], "must divide max_seq_len 128 into two segments or"),
        ([LORY, "arms.soft.segment_len=128"], "into two segments or more, got 128"),
        (
            [LORY, "arms.soft.first_segment=eos"],
            "must be 'own_mean', 'bos' or 'uniform', got 'eos'",
        ),
        (
            [LORY, "arms.soft.first_segment=uniform", "arms.soft.routing=prefix"],
            "must not be uniform with routing: prefix: no router would ever decide",
        ),
        ([LORY, "arms.soft.z_loss=0.1"], "arms.soft.z_loss must be a known key"),
        ([LORY, "arms.soft.ffn_router={}"], "arms.soft.ffn_router must be a known key"),
        ([LORY, "arms.soft.experts=[cod]"], "must be seed_model or a domain of the recipe, got"),
        ([COPIES, "arms.soft.experts=[code, law]"], "must not be given with experts: either"),
        (
            [LORY, "arms.soft.experts=[seed_model, seed_model]"],
            "arms.soft.experts must be num_experts: 2 where all are copies",
        ),
    ],
)
def test_a_bad_setting_of_lory_names_itself(overrides: list[str], message: str) -> None:
    assert message in problems("bam-attention-routing", *overrides)


SEGMENT = (
    "arms.soft={method: segment_moe, segment_len: 64, first_segment: own_mean, "
    "ffn_router: {score: softmax, select: ROUTER}}"
)
SEGMENT_TOP = SEGMENT.replace("ROUTER", "top_k, top_k: 1, renormalize: false")
SEGMENT_CHOICE = SEGMENT.replace("ROUTER", "expert_choice, capacity_factor: 1, inference_top_k: 1")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([SEGMENT_TOP, "arms.soft.first_segment=uniform"], "must be 'own_mean' or 'bos', got 'u"),
        ([SEGMENT_TOP, "arms.soft.segment_len=60"], "must divide max_seq_len 128 into two"),
        ([SEGMENT_TOP, "arms.soft.ffn_router.top_k=5"], "must be at most the number of experts"),
        (
            [SEGMENT_TOP, "arms.soft.ffn_router.capacity_factor=1.0"],
            "must have no capacity_factor where whole segments are routed",
        ),
        (
            [SEGMENT_CHOICE, "arms.soft.balance_loss={form: tokens, weight: 0.01}"],
            "balance_loss must not be given where experts choose",
        ),
        (["arms.soft={method: soft_moe}"], "arms.soft.slots_per_expert must be given"),
        (["arms.soft={method: smear, ffn_router: {}}"], "arms.soft.ffn_router must be a known key"),
        (
            ["arms.soft={method: token_merging, num_experts: 2, experts: [code]}"],
            "must not be given with experts: either",
        ),
    ],
)
def test_a_bad_setting_of_a_rival_of_lory_names_itself(overrides: list[str], message: str) -> None:
    assert message in problems("bam-attention-routing", *overrides)


def test_two_arms_that_are_the_same_run(tmp_path: Path) -> None:
    path = edited(tmp_path, "top_k: 2, renormalize: false", "top_k: 1, renormalize: false")
    assert "arms.top-1 must differ from arm 'top-2', got the same run" in problems(path)


def test_problems_of_all_files_come_at_once(tmp_path: Path) -> None:
    path = edited(tmp_path, "baseline: btx", "baseline: nobody")
    text = problems(path, "model.dim=-1", "recipe.expert.general_share=2", "scale.corpus=nowhere")
    for part in (
        "baseline must be an arm",
        "dim must be > 0",
        "general_share must be <= 1",
        "corpus must name a",
    ):
        assert part in text
    assert f"{path}:" in text


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(SpecError, match="Did you mean `bam-attention-routing`"):
        find_ablation("bam-atention-routing")


def test_every_shipped_ablation_resolves() -> None:
    for path in list_ablations():
        assert load_ablation(path.stem).ablation.id == path.stem


def test_a_mixture_phase_of_few_steps_must_be_said_to_be_a_trial() -> None:
    few = "scale.phases.mixture.tokens=409600"  # 100 steps
    text = problems("bam-attention-routing", few, "scale.phases.mixture.warmup_steps=10")
    assert "must give 200 optimizer steps or more, got 100: of fewer, hardly any" in text
    overrides = (few, "scale.phases.mixture.warmup_steps=10", "scale.trial=true")
    assert load_ablation("bam-attention-routing", overrides=overrides).scale.trial
    enough = "scale.phases.mixture.tokens=819200"  # 200 steps
    assert not load_ablation("bam-attention-routing", overrides=[enough]).scale.trial


def test_rows_of_dense_experts_need_dense_experts() -> None:
    load_ablation("bam-attention-routing", overrides=["report.experts=true"])
    found = problems("lory-prefix", "report.experts=true")
    assert "report.experts must not be true where no arm reads a dense expert" in found
