"""A decoded token in parts: against `decode`, `printed` and the model's tensors; critical paths."""

import pytest
import torch

from bam_lab.cost import communication
from bam_lab.cost.critical import critical_path
from bam_lab.cost.decode import decode
from bam_lab.cost.flops import per_token
from bam_lab.cost.inference import (
    cache_read_bytes,
    head_flops,
    inference_rows,
    layer_flops,
    prefill_flops,
    printed_layers,
    reached,
    weight_bytes,
)
from bam_lab.cost.printed import printed_forward
from bam_lab.errors import SpecError
from bam_lab.spec.laws import no_generation
from bam_lab.spec.methods import BTMMethod
from tests.cost.shapes import BTX, DENSE, KV_EXPERTS, KV_SHARING, LORY, SMALL, SPARSE, TOP_2, TOP_3
from tests.model.cases import EXPERTS, METHODS, model_of, shape

GENERATES = [name for name in METHODS if not no_generation(METHODS[name])]
BTX_6 = BTX.model_copy(update={"ffn_router": TOP_3})
BTM = BTMMethod(method="btm", top_k=2)


@pytest.mark.parametrize("method", GENERATES)
def test_parts_are_the_whole(method):
    """Layer by layer, FLOPs are those that `decode` counts, which a trace has confirmed."""
    spec, own = METHODS[method], shape()
    every = layer_flops(own, spec, EXPERTS, 50)
    whole = decode(own, spec, EXPERTS, 50)
    assert len(every) == own.num_layers
    assert sum(layer.total for layer in every) + head_flops(own, spec) == whole.flops
    paper = printed_layers(own, spec, EXPERTS, 50)
    assert sum(layer.total for layer in paper) == printed_forward(own, spec, EXPERTS, 50)


def test_an_ensemble_in_parts():
    whole = decode(SMALL, BTM, 4, 50)
    every = layer_flops(SMALL, BTM, 4, 50)
    assert sum(layer.total for layer in every) + head_flops(SMALL, BTM) == whole.flops
    assert sum(x.total for x in printed_layers(SMALL, BTM, 4, 50)) == printed_forward(
        SMALL, BTM, 4, 50
    )


def test_the_papers_table_layer_by_layer():
    """arXiv:2408.08274 Table 7."""
    for method, experts, total in (
        (KV_EXPERTS, 4, 48_257_024),
        (BTX, 4, 21_510_144),
        (BTX_6, 6, 46_692_352),
    ):
        assert [x.total for x in printed_layers(SMALL, method, experts, 256)] == [total] * 6


def test_layers_that_stay_dense_cost_less():
    one, other = layer_flops(SMALL, SPARSE, 4, 50)[:2]
    dense = layer_flops(SMALL, DENSE, 1, 50)[0]
    assert (one, other.ffn, other.attention) == (dense, 2 * dense.ffn, dense.attention)


def test_a_prompt_asks_the_head_once():
    one = per_token(SMALL, BTX, 4, 128).model_forward
    head = 2 * SMALL.dim * SMALL.vocab_size
    assert prefill_flops(SMALL, BTX, 4, 128) == 128 * one - 127 * head
    assert prefill_flops(SMALL, BTX, 4, 1) == per_token(SMALL, BTX, 4, 1).model_forward


@pytest.mark.parametrize(
    "method", ["btx-soft", "bam-shared-soft", "bam-per_expert-soft", "token_merging"]
)
def test_weights_of_models_that_use_all_are_their_tensors(method):
    """But for norms and the input embedding; FFN experts of BAM are top-1, all reached by many."""
    model = model_of(METHODS[method])
    numbers = sum(
        tensor.numel()
        for name, tensor in model.state_dict().items()
        if not name.endswith("norm") and name != "embedding"
    )
    assert weight_bytes(model.spec, METHODS[method], EXPERTS, 10_000, 4) == 4 * numbers


def test_rows_share_the_weights_of_experts_but_not_lorys_merged_ones():
    one, two = (weight_bytes(SMALL, BTX, 4, rows) for rows in (1, 2))
    ffn = 3 * 1024 * 2048 * 2 * 6
    assert two - one == pytest.approx(0.75 * ffn)  # the second row takes another in 3 of 4 cases
    one, many = (weight_bytes(SMALL, LORY, 4, rows) for rows in (1, 9))
    assert many - one == 8 * ffn
    assert weight_bytes(SMALL, LORY, 4, 1) == weight_bytes(SMALL, DENSE, 1, 1)
    assert weight_bytes(SMALL, DENSE, 1, 1) == weight_bytes(SMALL, DENSE, 1, 64)


@pytest.mark.parametrize(("held", "active", "rows"), [(4, 1, 1), (4, 1, 3), (8, 2, 5), (4, 4, 2)])
def test_reached_by_drawing(held, active, rows):
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(20_000, rows, held, generator=generator).topk(active).indices
    sent = torch.zeros(20_000, held).scatter(1, drawn.flatten(1), 1.0)
    assert float(reached(held, active, rows)) == pytest.approx(sent.sum(1).mean().item(), rel=0.01)


def test_cache_that_is_read():
    pair = 2 * 1024 * 2 * 6
    assert cache_read_bytes(SMALL, BTX, 4, 100) == 100 * pair
    assert cache_read_bytes(SMALL, KV_SHARING, 4, 100) == 100 * pair
    assert cache_read_bytes(SMALL, KV_EXPERTS, 4, 100) == 400 * pair
    top_2 = KV_EXPERTS.model_copy(update={"attention_router": TOP_2})
    assert cache_read_bytes(SMALL, top_2, 4, 100) == 200 * pair


@pytest.mark.parametrize("method", GENERATES)
def test_alone_the_critical_path_is_everything_in_a_serial_block(method):
    spec, own = METHODS[method], shape("serial")
    path = critical_path(own, spec, EXPERTS, 50, 1)
    assert path.flops == decode(own, spec, EXPERTS, 50).flops
    assert (path.exchanges, path.sent_bytes) == (0, 0)
    exact = not any(word in method for word in ("lory", "relu"))
    if exact:  # experts are reached by chance in one, taken in the other
        assert 2 * path.weights == weight_bytes(own, spec, EXPERTS)


@pytest.mark.parametrize(
    ("block", "apart", "exchanges"),
    [("parallel", False, 2), ("parallel", True, 2), ("serial", False, 4), ("serial", True, 4)],
)
def test_with_a_device_an_expert_attention_is_one_experts(block, apart, exchanges):
    """A parallel block waits for the longer half only, where each has devices of its own."""
    own = SMALL.model_copy(update={"block": block})
    dense, router = layer_flops(own, DENSE, 1, 257)[0], 2 * 1024 * 4
    halves = dense.attention + router, dense.ffn + router
    layer = max(halves) if apart and block == "parallel" else sum(halves)
    path = critical_path(own, KV_EXPERTS, 4, 257, 4, apart=apart)
    assert path.flops == 6 * layer + head_flops(own, DENSE)
    assert path.exchanges == 6 * exchanges


def test_bams_extra_shrinks_in_parallel_blocks():
    """Claim C8, by arithmetic: beside BTX's top-1, with a device an expert."""
    extra = {}
    for block in ("parallel", "serial"):
        own = SMALL.model_copy(update={"block": block})
        bam, btx = (critical_path(own, m, 4, 257, 4) for m in (KV_EXPERTS, BTX))
        extra[block] = bam.exchanges / btx.exchanges
        assert 1 <= bam.flops / btx.flops < 1.01  # where its FLOPs are 2.2 times BTX's
    assert extra == {"parallel": 1, "serial": 2}


def test_batches_share_devices_evenly():
    one = critical_path(SMALL, BTX, 4, 100, 4, 1)
    four = critical_path(SMALL, BTX, 4, 100, 4, 4)
    assert four.flops == one.flops and four.sent_bytes == 4 * one.sent_bytes
    assert critical_path(SMALL, BTX, 4, 100, 4, 8).flops == 2 * one.flops
    dense = critical_path(SMALL, DENSE, 1, 100, 8, 8)
    assert dense.flops == decode(SMALL, DENSE, 1, 100).flops


def test_soft_attention_sees_every_row_on_every_device():
    dense, router = layer_flops(SMALL, DENSE, 1, 100)[0], 2 * 1024 * 4
    layer = 4 * dense.attention + dense.ffn + 2 * router  # four rows, of which one is its own
    path = critical_path(SMALL, KV_EXPERTS, 4, 100, 4, 4)
    assert path.flops == 6 * layer + head_flops(SMALL, DENSE)


@pytest.mark.parametrize("name", ["btx", "kv_experts", "kv_sharing", "lory", "sparse", "top_2"])
def test_bytes_sent_are_half_of_those_of_a_training_step(name):
    method = {
        "btx": BTX, "kv_experts": KV_EXPERTS, "kv_sharing": KV_SHARING, "lory": LORY,
        "sparse": SPARSE, "top_2": KV_EXPERTS.model_copy(update={"attention_router": TOP_2}),
    }[name]  # fmt: skip
    short = SMALL.model_copy(update={"max_seq_len": 1})
    trained = communication.per_step(short, method, 4, 8, 4, 4).tokens
    assert critical_path(SMALL, method, 4, 100, 4, 8).sent_bytes == trained / 2


def test_an_ensembles_models_stand_side_by_side():
    path = critical_path(SMALL, BTM, 4, 100, 4)
    assert path.flops == 6 * layer_flops(SMALL, DENSE, 1, 100)[0].total + head_flops(SMALL, DENSE)
    assert path.exchanges == 1
    assert path == critical_path(SMALL, BTM, 4, 100, 4, apart=True)


def test_rows():
    rows = inference_rows(SMALL, KV_SHARING, 4, 256, (1, 8))
    assert {tuple(row) for row in rows} == {
        ("kind", "metric", "layer", "context", "batch", "unit", "value")
    }
    found = {(row["metric"], row["layer"], row["batch"]): row["value"] for row in rows}
    assert len(found) == len(rows)
    assert found["flops_total", "*", "*"] == decode(SMALL, KV_SHARING, 4, 256).flops
    assert found["printed_total", "*", "*"] == printed_forward(SMALL, KV_SHARING, 4, 256)
    assert found["weights_read", "*", 8] < found["weights_read", "*", 1]


def test_what_cannot_be_said_is_refused():
    with pytest.raises(SpecError, match="must have a causal inference rule"):
        layer_flops(shape(), METHODS["smear"], 4, 50)
    with pytest.raises(SpecError, match="must have a causal inference rule"):
        critical_path(shape(), METHODS["soft_moe"], 4, 50, 4)
    with pytest.raises(SpecError, match="group must divide the 4 experts, got 3"):
        critical_path(SMALL, BTX, 4, 50, 3)
