"""FLOPs and bytes of a cached step by formula against what a trace and the cache hold."""

import pytest
import torch

from bam_lab.cost.decode import decode
from bam_lab.cost.params import ffn_params
from bam_lab.errors import SpecError
from bam_lab.model.generate import Decoder
from bam_lab.model.trace import counted_flops
from bam_lab.spec.experts import relu_router
from tests.model.cases import DENSE, EXPERTS, SEGMENT, model_of, text
from tests.model.test_generate import ALL, METHODS, REFUSED, SYSTEMS, ensemble

ROWS = 2


def traced_step(decoder, rows=ROWS):
    with torch.no_grad():
        return counted_flops(lambda: decoder.step(text(rows, 1)[:, 0]))


@pytest.mark.parametrize(("method", "block", "rule"), ALL)
@torch.no_grad()
def test_formula_equals_trace(method, block, rule):
    """The last token of a segment, and the next one, which decides again under `segment`."""
    model, spec = model_of(SYSTEMS[method], block), SYSTEMS[method]
    decoder = Decoder(model, text(ROWS, 2 * SEGMENT - 1), None, 3, rule)
    decoder.start()
    costs = [decode(model.spec, spec, EXPERTS, 2 * SEGMENT + more, rule, 4) for more in (0, 1)]
    more = [open_gates(model, step) for step in (1, 2)]
    assert traced_step(decoder) == ROWS * costs[0].flops + more[0]
    assert traced_step(decoder) == ROWS * (costs[1].flops + costs[1].deciding_flops) + more[1]


def open_gates(model, step):
    """Return the FLOPs of ReLU gates beyond the formula's, in the step after so many others."""
    router = relu_router(model.method)
    if router is None:
        return 0
    prompts = text(ROWS, 2 * SEGMENT - 1)
    routings = model(torch.cat((prompts, text(ROWS, 1).expand(-1, step)), 1)).routings
    gates = [layer.ffn.gates[:, -1] for layer in routings if layer.ffn is not None]
    run = sum(int((own > 0).sum()) - router.active_experts * ROWS for own in gates)
    return 2 * run * ffn_params(model.spec)


@pytest.mark.parametrize(("method", "block", "rule"), ALL)
@torch.no_grad()
def test_bytes_are_those_of_the_cache(method, block, rule):
    """Room for a completion is not counted until it is used: here all of it is."""
    model = model_of(SYSTEMS[method], block)
    decoder = Decoder(model, text(ROWS, 7), None, 1, rule)
    decoder.start()
    held = 0
    for layer in decoder.caches[0].layers:
        state = [layer.ffn.gate_up, layer.ffn.down] if hasattr(layer.ffn, "gate_up") else []
        held += sum(x.numel() * x.element_size() for x in (layer.keys, layer.values, *state))
    assert held == ROWS * decode(model.spec, SYSTEMS[method], EXPERTS, 8, rule, 4).cache_bytes


@pytest.mark.parametrize("top_k", [1, 2])
@torch.no_grad()
def test_branch_train_merge_runs_every_model_and_some_heads(top_k):
    model = ensemble(top_k)
    decoder = Decoder(model, text(ROWS, 7), None, 2)
    decoder.start()
    cost = decode(model.spec, model.method, 3, 8)
    assert traced_step(decoder) == ROWS * cost.flops
    one = decode(model.spec, DENSE, 1, 8)
    head = 2 * 16 * 61
    assert cost.flops == 3 * one.flops - (3 - top_k) * head
    assert cost.cache_bytes == 3 * one.cache_bytes


def test_lory_decodes_as_a_dense_model_and_merges_once_a_segment():
    lory = METHODS["lory-uniform"]
    shape = model_of(lory).spec
    dense = decode(shape, DENSE, 1, 50)
    once, again = (decode(shape, lory, EXPERTS, 50, rule) for rule in ("prompt", "segment"))
    assert once.flops == once.mean_flops == again.flops == dense.flops
    assert once.deciding_flops == 0
    layers, ffn = 2, 3 * 16 * 24
    assert again.deciding_flops == 2 * layers * EXPERTS * (16 + ffn)
    assert again.mean_flops == round(dense.flops + again.deciding_flops / SEGMENT)
    assert once.cache_bytes == dense.cache_bytes + layers * ffn * 2


@pytest.mark.parametrize("method", REFUSED)
def test_what_cannot_generate_has_no_cost(method):
    with pytest.raises(SpecError, match="must have a causal inference rule to generate"):
        decode(model_of(DENSE).spec, METHODS[method], EXPERTS, 50)
