"""Memory and key-value bytes: sums by hand, and the order that they must have."""

from bam_lab.cost import kv, memory
from bam_lab.cost.params import count
from bam_lab.spec.routers import TopKRouter
from tests.cost.shapes import (
    BTX,
    DENSE,
    KV_EXPERTS,
    KV_SHARING,
    LARGE,
    LORY,
    RELU,
    SMALL,
    SPARSE,
)


def test_kv_bytes_of_one_token():
    """6 layers of 1024 keys and 1024 values in bf16; four times that with keys per expert."""
    assert kv.bytes_per_token(SMALL, DENSE, 1) == 6 * 2 * 1024 * 2
    assert kv.bytes_per_token(SMALL, BTX, 4) == kv.bytes_per_token(SMALL, KV_SHARING, 4) == 24_576
    assert kv.bytes_per_token(SMALL, KV_EXPERTS, 4) == 4 * 24_576
    assert kv.bytes_per_token(LARGE, DENSE, 1) == 18 * 2 * 6 * 128 * 2


def test_training_holds_sixteen_bytes_a_parameter():
    estimate = memory.training(SMALL, KV_EXPERTS, 4, batch_sequences=1)
    params = count(SMALL, KV_EXPERTS, 4).total
    assert estimate.weights + estimate.gradients + estimate.optimizer == 16 * params
    assert estimate.total > 16 * params + memory.PROCESS_BYTES


def test_memory_grows_with_batch_and_experts():
    def total(method, experts, batch):
        return memory.training(SMALL, method, experts, batch).total

    assert total(DENSE, 1, 8) < total(DENSE, 1, 16)
    assert total(BTX, 4, 8) < total(KV_SHARING, 4, 8) < total(KV_EXPERTS, 4, 8)


def test_sparse_upcycling_reads_one_model_and_caches_as_a_dense_one():
    params = count(SMALL, SPARSE, 4)
    assert params.total == 587_209_728 + 3 * (3 * 3 * 1024 * 2048 + 4 * 1024)
    assert params.active == 587_209_728 + 3 * (3 * 1024 * 2048 + 4 * 1024)
    assert memory.upcycling(SMALL, SPARSE, 4, DENSE).weights == 4 * (587_209_728 + params.total)
    assert kv.bytes_per_token(SMALL, SPARSE, 4) == kv.bytes_per_token(SMALL, DENSE, 1)
    every = SPARSE.model_copy(update={"layers": "all"})
    dense, half, whole = (
        memory.training(SMALL, *case, batch_sequences=8).activations
        for case in ((DENSE, 1), (SPARSE, 4), (every, 4))
    )
    assert half - dense == whole - half > 0
    one_layer = memory.evaluation(SMALL, SPARSE, 4).activations
    assert one_layer == memory.evaluation(SMALL, every, 4).activations


def test_lory_keeps_no_merged_weights_and_a_dense_models_cache():
    params = count(SMALL, LORY, 4)
    assert params.total == count(SMALL, BTX, 4).total
    assert params.active == count(SMALL, DENSE, 1).total + 6 * 4 * 1024
    assert kv.bytes_per_token(SMALL, LORY, 4) == kv.bytes_per_token(SMALL, DENSE, 1)
    lory, btx = (memory.training(SMALL, m, 4, batch_sequences=1).activations for m in (LORY, BTX))
    assert btx - lory == 4 * 6 * 256 * 2 * 2048  # 6 layers, 4 bytes: gate and up alone
    copies = LORY.model_copy(update={"num_experts": 4})
    assert memory.upcycling(SMALL, copies, 4, DENSE).weights == 4 * (587_209_728 + params.total)


def test_gathered_queries_keep_less():
    """Top-1 with own keys: 1 set of queries for 4, probabilities over 256 keys for 4 x 160."""
    router = TopKRouter(score="softmax", select="top_k", top_k=1, renormalize=False)
    top_1 = KV_EXPERTS.model_copy(update={"attention_router": router})
    soft, gathered = (
        memory.training(SMALL, m, 4, batch_sequences=1).activations for m in (KV_EXPERTS, top_1)
    )
    queries, probabilities = 4 * 3 * 4 * 1024, 2 * 8 * (4 * 160 - 256)
    assert soft - gathered == 256 * 6 * (queries + probabilities)


def test_a_shared_expert_keeps_what_one_more_active_expert_does():
    """And ReLU gates, driven to one expert a token, what their open half keeps at the start."""
    shared, relu = ({"shared_expert": True}, {"ffn_router": RELU})
    plain, *more = (
        memory.training(SMALL, BTX.model_copy(update=own), 4, batch_sequences=1).activations
        for own in ({}, shared, relu)
    )
    one = 4 * 6 * 256 * (4 * 2048 + 2 * 1024)
    assert [own - plain for own in more] == [one, one]
    assert count(SMALL, BTX.model_copy(update=shared), 4).active == (
        count(SMALL, BTX, 4).active + 6 * 3 * 1024 * 2048
    )


def test_a_rows_cache_holds_keys_and_lorys_merged_ffns():
    assert kv.cache_bytes(SMALL, KV_EXPERTS, 4, 100) == 100 * 4 * 24_576
    merged = 6 * 3 * 1024 * 2048 * 2
    assert kv.cache_bytes(SMALL, LORY, 4, 100) == 100 * 24_576 + merged


def test_upcycling_holds_the_sources_and_the_mixture():
    estimate = memory.upcycling(SMALL, BTX, 4, DENSE)
    assert estimate.weights == 4 * (4 * 587_209_728 + 700_480_512)
    assert memory.evaluation(SMALL, BTX, 4).weights == 4 * 700_480_512
