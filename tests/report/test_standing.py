"""Arms that see later tokens: not ranked if scored so, marked if only trained so."""

import pytest

from bam_lab.report.collect import collect
from bam_lab.report.standing import looks_ahead, matching, unranked
from bam_lab.report.tables import effects_table
from tests.report.fake_store import ARMS, Fake, make_store

CHOICE = {
    "score": "softmax",
    "select": "expert_choice",
    "capacity_factor": 2.0,
    "inference_top_k": 2,
}
AHEAD = {
    "smear": {"method": "smear", "num_experts": 4},
    "lory": {"method": "lory", "segment_len": 64, "first_segment": "own_mean", "num_experts": 4},
    "choice": {"method": "btx", "ffn_router": CHOICE, "balance_loss": None},
    "both": {
        "method": "segment_moe",
        "segment_len": 64,
        "first_segment": "own_mean",
        "ffn_router": CHOICE,
        "num_experts": 4,
    },
}


@pytest.fixture
def evidence(tmp_path):
    return collect(tmp_path, make_store(tmp_path, Fake(arms={"btx": ARMS["btx"], **AHEAD})))


def test_scored_on_later_tokens_is_not_ranked(evidence):
    assert unranked(evidence, "smear") == (
        "its held-out losses see later tokens (a sequence is routed by the mean of all its tokens)"
    )
    assert [unranked(evidence, arm) for arm in ("btx", "lory", "choice")] == ["", "", ""]


def test_what_looks_ahead_is_said_beside_its_row(evidence):
    assert looks_ahead(evidence, "btx") == ""
    notes = {row.head: row.note for row in effects_table(evidence, ()).rows}
    assert notes["btx"] == ""
    assert notes["smear"].startswith("smear is shown but not ranked: its held-out losses see later")
    assert notes["lory"].startswith(
        "lory: tokens of the first segment see later ones of it, when scored"
    )
    assert notes["both"].startswith("both: not causal in training (experts choose among all")
    assert "scored by another rule; tokens of the first segment see later ones" in notes["both"]
    assert notes["choice"].startswith(
        "choice: not causal in training (experts choose among all tokens"
    )


@pytest.mark.parametrize(
    ("paper", "match", "said"),
    [
        ("arXiv:2408.08274", {"on": "flops"}, "The paper matched TPU core-days of the mixture"),
        (
            "arXiv:2403.07816",
            {"on": "flops", "phase": "all"},
            "The paper matched GPU-days of all phases; we match model training FLOPs of all phases",
        ),
        (
            "arXiv:2403.07816",
            {"on": "device-time", "phase": "all"},
            "GPU-days of all phases; we match measured device time of all phases, on our machine",
        ),
        ("arXiv:2212.05055", {"on": "flops"}, "Arms are equal in model training FLOPs of the"),
        ("arXiv:2403.07816", {"on": "tokens"}, "without branches read the branches' text before"),
        ("arXiv:2405.03133", {"on": "tokens"}, "arms are equal in mixture-phase tokens, in its o"),
    ],
)
def test_the_matching_is_each_papers_own(evidence, paper, match, said):
    source = {"paper": paper, "table": "", "also": ""}
    changed = evidence.ablation | {"source": source, "match": {"unmatched": "", **match}}
    arms = (
        evidence.arm("btx").model_copy(update={"branches": ("seed_model", "code")}),
        evidence.arm("lory").model_copy(update={"branches": ("seed_model",)}),
    )
    text = matching(evidence.model_copy(update={"ablation": changed, "arms": arms}), True)
    assert said in text
    assert ("branches" in text) == ("branches" in said)
