"""What training takes on known devices, against sums by hand."""

import pytest

from bam_lab.cost import devices, memory
from bam_lab.cost.communication import per_step
from bam_lab.cost.devices import DEVICES, RESERVED_BYTES, Cluster, need
from bam_lab.cost.flops import per_token
from bam_lab.cost.params import count
from tests.cost.shapes import BTX, DENSE, KV_EXPERTS, SMALL, shape

CLUSTER = Cluster("h100", 8, 0.4)
TOKENS = 100_000_000_000


def asked(method=DENSE, experts=1, sequences=4096, cluster=CLUSTER, model=SMALL):
    flops = TOKENS * per_token(model, method, experts, model.max_seq_len).model_training
    return need(model, method, experts, sequences, flops, cluster)


def test_hours_are_flops_over_what_the_devices_reach():
    found = asked(BTX, 4)
    flops = TOKENS * per_token(SMALL, BTX, 4, 256).model_training
    assert found.device_hours == pytest.approx(flops / (989e12 * 0.4) / 3600)
    assert found.wall_hours == pytest.approx(found.device_hours / 8)
    assert found.tokens_per_second == pytest.approx(TOKENS / (found.wall_hours * 3600))


def test_states_are_sharded_and_passes_make_activations_fit():
    found = asked(sequences=4096)
    rows = 512 // found.passes
    assert found.fits
    parts = memory.training(SMALL, DENSE, 1, rows)
    states = 16 * count(SMALL, DENSE, 1).total / 8
    gathered = 2 * 2 * 256000 * 1024  # two of the largest unit, the embedding, in bf16
    held = states + gathered + parts.activations + parts.logits + RESERVED_BYTES
    assert found.memory_bytes == pytest.approx(held)
    whole = memory.training(SMALL, DENSE, 1, 2 * rows).activations - parts.activations
    assert found.memory_bytes + whole > DEVICES["h100"].memory_bytes  # half the passes do not fit


def test_more_devices_hold_less():
    one, eight = (asked(cluster=Cluster("b200", n, 0.4), sequences=8) for n in (1, 8))
    assert one.memory_bytes > eight.memory_bytes
    assert one.sent_bytes == 0


def test_what_does_not_fit_is_said_at_one_sequence_a_pass():
    large = shape(dim=8192, num_layers=80, num_heads=64, num_kv_heads=64, ffn_dim=28672)
    found = asked(model=large, cluster=Cluster("rtx-4090", 8, 0.4), sequences=64)
    assert not found.fits
    assert found.passes == 8


def test_devices_without_a_sequence_stand_idle():
    assert asked(sequences=4).idle
    assert not asked(sequences=8).idle


def test_each_device_sends_its_share():
    found = asked(KV_EXPERTS, 4)
    assert found.sent_bytes == per_step(SMALL, KV_EXPERTS, 4, 4096, 8).total / 8


def test_every_device_has_sane_numbers():
    for device in devices.DEVICES.values():
        assert 5e13 < device.peak_flops < 5e15
        assert 8e9 <= device.memory_bytes < 1e12
