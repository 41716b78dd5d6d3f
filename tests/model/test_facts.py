"""What routers are said to do, by hand."""

import math

import pytest
import torch

from bam_lab.model.block import LayerRouting
from bam_lab.model.context import Draw
from bam_lab.model.facts import routing_facts
from bam_lab.model.router import Routing, expert_choice, limit, route_by_hash, top_k
from bam_lab.model.transformer import Output
from tests.model.cases import DENSE, METHODS, model_of, text
from tests.model.cases import expert_choice as choosing

LOGITS = torch.log(torch.tensor([[[3.0, 1.0], [1.0, 3.0], [3.0, 1.0], [3.0, 1.0]]]))
ENTROPY = math.log(4) - 0.75 * math.log(3)  # of (3/4, 1/4)


def facts(*layers):
    """Return the facts of layers, each an FFN routing or (attention's, FFN's)."""
    routings = [
        layer if isinstance(layer, LayerRouting) else LayerRouting(None, layer) for layer in layers
    ]
    found = routing_facts(Output(torch.zeros(1, 4, 2), tuple(routings)))
    return {name: pytest.approx(float(value)) for name, value in found.items()}


def test_top_1_by_hand():
    loads = {"load_max_ffn": 0.75, "load_min_ffn": 0.25}
    assert facts(top_k(LOGITS, 1, False)) == {"entropy_ffn": ENTROPY, **loads}


def test_soft_routing_loads_by_gates():
    gates = LOGITS.softmax(-1)
    soft = Routing(LOGITS, gates, torch.arange(2).expand(1, 4, 2))
    assert facts(soft)["load_max_ffn"] == (3 * 0.75 + 0.25) / 4


def test_dropped_choices_do_not_load():
    routing = limit(top_k(LOGITS, 1, False), 1.0)  # of three tokens for expert 0, two fit
    loads = {"load_max_ffn": 2 / 3, "load_min_ffn": 1 / 3}
    assert facts(routing) == {"entropy_ffn": ENTROPY, **loads, "dropped_ffn": 0.25}


def test_tokens_without_an_expert_are_dropped():
    logits = torch.tensor([[[2.0, 1.0], [0.0, 0.0], [0.0, 0.0], [3.0, 9.0]]])
    routing = expert_choice(logits.log_softmax(-1), choosing(0.5, 1))
    found = facts(routing)
    assert found["load_max_ffn"] == 0.5
    assert found["dropped_ffn"] == 0.5


def test_a_hash_is_certain():
    routing = route_by_hash(torch.tensor([[0, 1, 1, 1]]), torch.tensor([1, 0]), 2)
    assert facts(routing) == {"entropy_ffn": 0, "load_max_ffn": 0.75, "load_min_ffn": 0.25}


def test_an_expert_is_used_by_one_token_that_wants_it():
    even, sure = [0.25, 0.25, 0.25, 0.25], [0.7, 0.1, 0.1, 0.1]
    gates = torch.tensor([[even, even, even, sure]])
    soft = Routing(gates.log(), gates, torch.arange(4).expand(1, 4, 4))
    assert facts(soft)["used_ffn"] == 0.25  # only the first is above 2/4, and only once
    assert facts(soft)["load_min_ffn"] == (3 * 0.25 + 0.1) / 4
    dead = route_by_hash(torch.tensor([[0, 1, 1, 2]]), torch.tensor([0, 1, 2]), 4)
    assert (facts(dead)["used_ffn"], facts(dead)["load_min_ffn"]) == (0.75, 0)


def test_layers_are_averaged_and_kinds_apart():
    one, other = top_k(LOGITS, 1, False), top_k(torch.zeros(1, 4, 2), 1, False)
    found = facts(LayerRouting(other, one), LayerRouting(other, other))
    assert found["entropy_ffn"] == (ENTROPY + math.log(2)) / 2
    assert found["entropy_attention"] == math.log(2)
    names = ("entropy", "load_max", "load_min")
    assert set(found) == {f"{name}_{kind}" for name in names for kind in ("ffn", "attention")}


def test_a_dense_model_has_none():
    assert routing_facts(model_of(DENSE)(text())) == {}


@pytest.mark.parametrize("name", METHODS)
def test_facts_of_every_method_are_finite_and_carry_no_gradient(name):
    draw = Draw(0, torch.Generator().manual_seed(0))
    for value in routing_facts(model_of(METHODS[name])(text(), draw)).values():
        assert value.isfinite() and not value.requires_grad and value.ndim == 0
