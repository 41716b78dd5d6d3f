"""Memory and key-value bytes: sums by hand, and the order that they must have."""

from bam_lab.cost import kv, memory
from bam_lab.cost.params import count
from tests.cost.shapes import BTX, DENSE, KV_EXPERTS, KV_SHARING, LARGE, SMALL


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


def test_upcycling_holds_the_sources_and_the_mixture():
    estimate = memory.upcycling(SMALL, BTX, 4, DENSE)
    assert estimate.weights == 4 * (4 * 587_209_728 + 700_480_512)
    assert memory.evaluation(SMALL, BTX, 4).weights == 4 * 700_480_512
