"""FLOPs: the paper's printed rows exactly, ours against sums written out by hand."""

import pytest

from bam_lab.cost.flops import per_token
from bam_lab.cost.printed import per_layer
from bam_lab.spec.methods import SoftMoEMethod, TokenMergingMethod
from tests.cost.shapes import (
    BTX,
    CHOICE,
    DENSE,
    HASH,
    KV_EXPERTS,
    KV_SHARING,
    LORY,
    SAMPLE,
    SMALL,
    SOFT,
    SPARSE,
    SWITCH,
    TOP_1,
    TOP_2,
    TOP_3,
    shape,
)

TINY = shape(vocab_size=10, dim=4, num_layers=1, num_heads=2, num_kv_heads=2, head_dim=2, ffn_dim=8)


@pytest.mark.parametrize(
    ("method", "experts", "attention", "ffn", "total"),
    [
        (KV_EXPERTS, 4, 35_651_584, 12_589_056, 48_257_024),
        (BTX, 4, 8_912_896, 12_589_056, 21_510_144),
        (BTX.model_copy(update={"ffn_router": TOP_3}), 6, 8_912_896, 37_767_168, 46_692_352),
    ],
)
def test_table_7(method, experts, attention, ffn, total):
    row = per_layer(SMALL, method, experts, 256)
    assert (row.attention, row.ffn, row.total) == (attention, ffn, total)
    assert per_token(SMALL, method, experts, 256).printed_forward == 6 * total


def test_dense_by_hand():
    """dim 4, ffn 8, 10 words, 3 tokens: products 2 x (4 x 16 + 3 x 32 + 40), attention over 2."""
    counted = per_token(TINY, DENSE, 1, 3)
    products = 2 * (4 * 16 + 3 * 32 + 40)
    assert counted.model_forward == products + 2 * 2 * 4 * 2
    assert counted.model_training == 3 * counted.model_forward
    # One block of 3 rows reads 3 keys: 2 products forward, 4 backward.
    assert counted.executed_forward == products + 2 * 2 * 4 * 3
    assert counted.executed_training == 3 * products + 6 * 2 * 4 * 3


def test_executed_attention_reads_blocks_then_everything():
    def attention(seq_len, forward):
        counted = per_token(TINY, DENSE, 1, seq_len)
        executed = counted.executed_forward if forward else counted.executed_training
        return executed - (1 if forward else 3) * 2 * (4 * 16 + 3 * 32 + 40)

    assert attention(256, True) == 2 * 2 * 4 * 160
    assert attention(256, False) == 3 * attention(256, True)
    assert attention(2048, True) == 2 * 2 * 4 * 2048
    assert attention(2048, False) == attention(2048, True) * 7 // 2


def test_executed_top_k_runs_chosen_queries_only():
    """Gathered, 64 queries of an expert stand over all 256 keys: one tile of 64 x 256."""

    def executed(kv, router):
        method = KV_EXPERTS.model_copy(update={"kv": kv, "attention_router": router})
        return per_token(SMALL, method, 4, 256).executed_forward

    layers, reads, queries = 6, 2 * 2 * 1024, 2 * 2 * 1024**2
    saved = 3 * queries + reads * (4 * 160 - 256)
    assert executed("per_expert", SOFT) - executed("per_expert", TOP_1) == layers * saved
    saved = 3 * queries + reads * (4 * 160 - 160)
    assert executed("shared", SOFT) - executed("shared", TOP_1) == layers * saved


def test_attention_experts_by_hand():
    """4 experts of queries and outputs (2 x 16 each); keys and values once or four times."""
    dense = per_token(TINY, DENSE, 1, 3).model_forward
    routers, attention = 2 * 2 * 4 * 4, 2 * 2 * 4 * 2
    shared = per_token(TINY, KV_SHARING, 4, 3).model_forward
    assert shared == dense + routers + 3 * (2 * 32 + attention)
    assert per_token(TINY, KV_EXPERTS, 4, 3).model_forward == shared + 3 * 2 * 32


def test_per_expert_keys_count_whatever_the_routing():
    top_1 = KV_EXPERTS.model_copy(update={"attention_router": TOP_1})
    shared_top_1 = KV_SHARING.model_copy(update={"attention_router": TOP_1})
    more = per_token(TINY, top_1, 4, 3).model_forward
    assert more - per_token(TINY, shared_top_1, 4, 3).model_forward == 3 * 2 * 32


def test_soft_ffn_router_runs_every_expert():
    soft = BTX.model_copy(update={"ffn_router": SOFT})
    more = per_token(TINY, soft, 4, 3).model_forward - per_token(TINY, BTX, 4, 3).model_forward
    assert more == 3 * 2 * 3 * 32


def test_experts_that_choose_cost_their_capacity_in_training_and_top_k_at_inference():
    top_1 = per_token(TINY, BTX, 4, 3)
    choice = per_token(TINY, BTX.model_copy(update={"ffn_router": CHOICE}), 4, 3)
    ffn = 2 * 3 * 4 * 8
    assert choice.model_forward == top_1.model_forward
    assert choice.executed_forward == top_1.executed_forward
    assert choice.model_training == top_1.model_training + 3 * ffn // 2
    assert choice.executed_training == top_1.executed_training + 3 * ffn // 2


def test_a_hash_spares_the_router_and_a_limit_nothing():
    top_1 = per_token(TINY, BTX, 4, 3)
    hashed = per_token(TINY, BTX.model_copy(update={"ffn_router": HASH}), 4, 3)
    assert hashed.model_forward == top_1.model_forward - 2 * 4 * 4
    assert hashed.executed_training == top_1.executed_training - 3 * 2 * 4 * 4
    assert per_token(TINY, BTX.model_copy(update={"ffn_router": SWITCH}), 4, 3) == top_1


def test_sampling_runs_one_expert_and_all_in_a_soft_first_layer():
    model = TINY.model_copy(update={"num_layers": 3})
    top_1 = per_token(model, BTX, 4, 3)
    sample = per_token(model, BTX.model_copy(update={"ffn_router": SAMPLE}), 4, 3)
    assert sample.model_forward == top_1.model_forward + 3 * 2 * 3 * 4 * 8
    assert sample.executed_training == top_1.executed_training + 3 * 3 * 2 * 3 * 4 * 8


def test_sparse_upcycling_adds_a_second_expert_and_a_router_in_every_other_layer():
    """dim 4, ffn 8, 3 layers: only the second has 4 experts, of which a token takes two."""
    three = TINY.model_copy(update={"num_layers": 3})
    dense, sparse = per_token(three, DENSE, 1, 3), per_token(three, SPARSE, 4, 3)
    more = 2 * (3 * 32 + 4 * 4)
    assert sparse.model_forward - dense.model_forward == more
    assert sparse.executed_training - dense.executed_training == 3 * more
    every = per_token(three, SPARSE.model_copy(update={"layers": "all"}), 4, 3)
    assert every.model_forward - dense.model_forward == 3 * more
    printed = per_layer(three, DENSE, 1, 3).total, per_layer(three, SPARSE, 4, 3).total
    assert sparse.printed_forward == 2 * printed[0] + printed[1]


@pytest.mark.parametrize(("experts", "percent"), [(8, 3.125), (32, 12.5)])
def test_lorys_merging_costs_what_its_paper_prints(experts, percent):
    """E / T of the FFN (arXiv:2405.03133 §3): 3.1% and 12.5% at 256 of 4,096 tokens."""
    model = SMALL.model_copy(update={"max_seq_len": 4096})
    lory = LORY.model_copy(update={"segment_len": 256})
    dense = per_token(model, DENSE, 1, 4096)
    merged = per_token(model, lory, experts, 4096)
    ffn, router = 2 * 3 * 1024 * 2048, 2 * 1024 * experts // 256
    more = 6 * (ffn * percent / 100 + router)
    assert merged.model_forward - dense.model_forward == more
    again = 6 * ffn * percent / 100  # the backward merges again
    assert merged.executed_training - dense.executed_training == 3 * more + again
    assert merged.printed_forward - dense.printed_forward == more


def test_lory_fills_its_last_segment():
    """dim 4, ffn 8, 2 experts, 6 tokens: 2 segments of 4 run 8 places, 2 merges, 2 decisions."""
    lory = LORY.model_copy(update={"segment_len": 4})
    dense, merged = per_token(TINY, DENSE, 1, 6), per_token(TINY, lory, 2, 6)
    merging = 2 * (2 * 2 * 3 * 32 + 2 * 2 * 4)
    assert 6 * (merged.model_forward - dense.model_forward) == pytest.approx(merging, abs=3)
    filled = merging + 2 * 2 * 3 * 32
    assert 6 * (merged.executed_forward - dense.executed_forward) == pytest.approx(filled, abs=3)


def test_a_token_before_the_sequence_is_a_place_and_a_segment_of_its_own():
    """6 tokens in 2 segments: 7 places, 3 merges and decisions, 28 keys read; 6 logits."""
    lory = LORY.model_copy(update={"segment_len": 3, "first_segment": "bos"})
    dense, bos = per_token(TINY, DENSE, 1, 6), per_token(TINY, lory, 2, 6)
    products = 2 * (4 * 4 * 4 + 3 * 32) + 3 * 2 * (2 * 3 * 32 + 2 * 4)
    keys = 2 * 4 * (7 * 8 - 6 * 7)
    assert 6 * (bos.model_forward - dense.model_forward) == pytest.approx(products + keys, abs=6)


def test_a_prefix_decides_and_merges_once():
    """Executed twice: the first segment's tokens teach the router nothing."""
    lory = LORY.model_copy(update={"segment_len": 3, "routing": "prefix"})
    dense, once = per_token(TINY, DENSE, 1, 6), per_token(TINY, lory, 2, 6)
    merge, router = 2 * 2 * 3 * 32, 2 * 2 * 4
    assert 6 * (once.model_forward - dense.model_forward) == pytest.approx(merge + router, abs=6)
    executed = 6 * (once.executed_forward - dense.executed_forward)
    assert executed == pytest.approx(2 * merge + router, abs=6)


def test_soft_moe_with_as_many_slots_as_tokens_costs_a_dense_ffn_and_its_mixing():
    """2 experts of 3 slots, 6 tokens: three products of 6 x 6 x dim a sequence."""
    soft = SoftMoEMethod(method="soft_moe", slots_per_expert=3)
    dense, mixed = per_token(TINY, DENSE, 1, 6), per_token(TINY, soft, 2, 6)
    assert mixed.model_forward - dense.model_forward == 3 * 2 * 6 * 4


def test_merging_for_every_token_costs_every_expert():
    token = TokenMergingMethod(method="token_merging")
    soft = BTX.model_copy(update={"ffn_router": SOFT})
    one, other = (per_token(TINY, m, 4, 6).model_forward for m in (token, soft))
    assert one == other


def test_top_2_lies_between_top_1_and_soft():
    def cost(router):
        method = KV_SHARING.model_copy(update={"attention_router": router})
        return per_token(SMALL, method, 4, 256).model_forward

    assert cost(TOP_1) < cost(TOP_2) < cost(SOFT)
