"""Router churn: nothing where nothing moved, by hand where something did, and no trace left."""

import numpy as np
import pytest
import torch

from bam_lab.data.tokens.heldout import UNSCORED, windows
from bam_lab.evaluate.churn import churn, decisions, watch_of
from bam_lab.spec.experts import has_bos
from tests.data.random_tokens import write_domain, write_manifest
from tests.model.cases import DENSE, METHODS, model_of, text

SEQ_LEN, DOMAINS = 16, ("law", "code")


@pytest.fixture(scope="module")
def tokens_dir(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("tokens"), np.random.default_rng(0)
    for number, domain in enumerate(DOMAINS):
        lengths = random.integers(10, 60, 40)
        write_domain(folder, domain, lengths, np.zeros(40), "valid", number)
    write_manifest(folder, ["s"], dict.fromkeys(DOMAINS, 0))
    return folder


def everything(model, tokens):
    return decisions(model, tokens, torch.ones_like(tokens, dtype=torch.bool), "float32")


def shift_router(model, kind, layer, columns):
    """Exchange experts' columns in one router, so that other experts are chosen."""
    with torch.no_grad():
        router = getattr(model.layers[layer], kind).router
        router.copy_(router[columns])


def test_first_choices_by_hand():
    before = {"ffn.0": torch.tensor([0, 1, 2, -1]), "ffn.1": torch.tensor([3, 3, 3, 3])}
    after = {"ffn.0": torch.tensor([0, 2, -1, 1]), "ffn.1": torch.tensor([3, 3, 3, 0])}
    assert churn(before, after) == {"ffn": (0.75 + 0.25) / 2}


def test_distance_of_gates_by_hand():
    before = {"attention.1": torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])}
    after = {"attention.1": torch.tensor([[0.2, 0.5, 0.3], [0.0, 0.0, 1.0]])}
    assert churn(before, after) == {"attention": pytest.approx((0.3 + 1.0) / 2)}


def test_the_kinds_stand_apart():
    model, tokens = model_of(METHODS["bam-shared-top-2"]), text(2, 25)
    before = everything(model, tokens)
    shift_router(model, "attention", 1, [1, 2, 3, 0])
    found = churn(before, everything(model, tokens))
    # The last layer's attention has all columns moved; blocks are parallel, so FFNs see the same.
    assert found == {"ffn": 0.0, "attention": 0.5}


def test_soft_routing_moves_by_its_gates():
    model, tokens = model_of(METHODS["bam-shared-soft"]), text(2, 25)
    before = everything(model, tokens)
    shift_router(model, "attention", 1, [1, 0, 2, 3])
    found = churn(before, everything(model, tokens))
    gates = before["attention.1"]
    moved = (gates[:, 0] - gates[:, 1]).abs().mean() / 2  # half of the mean over two layers
    assert found == {"ffn": 0.0, "attention": pytest.approx(float(moved), rel=1e-5)}


@pytest.mark.parametrize("method", METHODS)
def test_every_router_is_watched_and_stands_still_where_nothing_is_trained(method):
    model, tokens = model_of(METHODS[method]), text(2, 25)
    first, second = everything(model, tokens), everything(model, tokens)
    assert first
    assert {name.partition(".")[0] for name in first} <= {"ffn", "attention"}
    assert set(churn(first, second).values()) == {0.0}


def test_segments_decide_once_each():
    method = METHODS["lory-own_mean"]
    found = everything(model_of(method), text(2, 25))
    segments = -(-25 // method.segment_len)
    assert found["ffn.0"].shape[:1] == (2 * (segments + has_bos(method)),)


def test_a_token_that_no_expert_serves_has_no_first_choice():
    model = model_of(METHODS["btx-relu"])
    with torch.no_grad():
        for layer in model.layers:
            layer.ffn.router.zero_()
    assert set(everything(model, text(2, 25))["ffn.0"].tolist()) == {-1}


def test_a_dense_model_decides_nothing():
    assert everything(model_of(DENSE), text(2, 25)) == {}


def test_the_watch_reads_the_same_few_windows(tokens_dir):
    model = model_of(METHODS["btx-top-1"])
    watch = watch_of(model, tokens_dir, DOMAINS, "valid", SEQ_LEN, 40, "float32")
    first, before = watch({})
    held = [windows(tokens_dir, name, "valid", SEQ_LEN, 40).document[:2] for name in DOMAINS]
    assert first == {}
    assert len(before["ffn.0"]) == sum(int((one != UNSCORED).sum()) for one in held)
    assert watch(before)[0] == {"ffn": 0.0}
    shift_router(model, "ffn", 0, [1, 2, 3, 0])
    assert watch(before)[0]["ffn"] >= 0.5


@pytest.mark.parametrize("method", ["btx-sample", "btx-relu", "btx-top-2-bias", "lory-own_mean"])
def test_watching_leaves_no_trace(tokens_dir, method):
    model = model_of(METHODS[method])
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.get_rng_state()
    watch_of(model, tokens_dir, DOMAINS, "valid", SEQ_LEN, 40, "bf16-mixed")({})
    assert torch.equal(torch.get_rng_state(), random)
    assert model.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    assert all(parameter.grad is None for parameter in model.parameters())
