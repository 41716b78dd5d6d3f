"""The step-0 receipt: its facts hold on good models and fail on broken ones."""

import json

import pytest
import torch

from bam_lab.model.checkpoint import build
from bam_lab.spec.experts import copies_seed, num_sources
from bam_lab.upcycle import receipt as receipts
from bam_lab.upcycle.execute import upcycle
from bam_lab.upcycle.receipt import predicted_gate_sum, receipt
from tests.model.cases import (
    DENSE,
    EXPERTS,
    METHODS,
    SOFT,
    bam,
    btx,
    keeps_scale,
    lory,
    model_of,
    shape,
    text,
    top_k,
)


def mixture_of(method, dense):
    states = [model.state_dict() for model in dense[: num_sources(method, EXPERTS)]]
    generator = torch.Generator().manual_seed(0)
    return build(shape(), method, EXPERTS, upcycle(method, shape(), states, generator))


def receipt_of(method, copies=False):
    dense = [model_of(DENSE, seed=0 if copies else i) for i in range(EXPERTS)]
    named = {f"model{i}": model for i, model in enumerate(dense)}
    domains = {"law": text(3, 120), "code": text(2, 120, seed=2)}
    return receipt(mixture_of(method, dense), named, domains)


@pytest.mark.parametrize("name", [name for name in METHODS if not copies_seed(METHODS[name])])
def test_distinct_experts(name):
    facts = receipt_of(METHODS[name])
    json.dumps(facts, allow_nan=False)
    assert facts["causality"]["holds"] == (name != "lory-own_mean")
    assert facts["batch_invariance"]["holds"]
    assert set(facts["step0_nats"]) == {"law", "code"}
    assert set(facts["step0_nats"]["law"]) == {"mixture", *(f"model{i}" for i in range(EXPERTS))}
    assert facts["coverage"]["tensors"] == sum(facts["coverage"]["by_origin"].values())
    for gradient in facts["router_gradients"].values():
        assert gradient["learns"]
        assert not gradient["zero_by_symmetry"]
        assert gradient["norm"] > 0
    for gate_sum in facts["gate_sum"].values():
        # Routers start near uniform: normed inputs of 16 numbers times a spread of 0.02.
        assert gate_sum["measured"] == pytest.approx(gate_sum["predicted"], abs=0.05)


@pytest.mark.parametrize("name", METHODS)
def test_copies_give_zero_by_symmetry_where_gates_sum_to_one(name):
    """Equal experts: only the gates' sum matters, so renormalised routers get nothing."""
    facts = receipt_of(METHODS[name], copies=True)
    for router, gradient in facts["router_gradients"].items():
        method = METHODS[name]
        part = "attention_router" if ".attention." in router else "ffn_router"
        spec = getattr(method, part, SOFT)
        symmetric = spec.select == "all" or spec.renormalize
        assert gradient["zero_by_symmetry"] == symmetric, router
        assert gradient["learns"]
    assert facts["causality"]["holds"] == (name != "lory-own_mean")
    assert facts["batch_invariance"]["holds"]
    nats = facts["step0_nats"]["law"]
    if keeps_scale(METHODS[name]):
        assert nats["mixture"] == pytest.approx(nats["model0"], abs=1e-5)


def test_dense_arms_have_receipts_without_routers():
    model = model_of(DENSE)
    facts = receipt(model, {"seed_model": model}, {"law": text()})
    assert "router_gradients" not in facts
    assert facts["step0_nats"]["law"]["mixture"] == facts["step0_nats"]["law"]["seed_model"]
    assert facts["coverage"]["by_origin"] == {"take": facts["coverage"]["tensors"]}


@pytest.mark.parametrize(
    ("router", "wanted"),
    [(SOFT, 1.0), (top_k(2, True), 1.0), (top_k(1), 0.25), (top_k(3), 0.75)],
)
def test_predicted_gate_sum(router, wanted):
    assert predicted_gate_sum(router, 4) == wanted


def test_a_model_that_looks_ahead_fails(monkeypatch):
    """Reverse time inside: the receipt must say that causality is broken."""
    model = mixture_of(bam("shared", SOFT), [model_of(DENSE, seed=i) for i in range(EXPERTS)])
    forward = model.layers[0].ffn.forward
    ahead = lambda x, normed, context: forward(x.roll(-1, 1), normed, context)  # noqa: E731
    monkeypatch.setattr(model.layers[0].ffn, "forward", ahead)
    facts = receipt(model, {}, {"law": text()})
    assert not facts["causality"]["holds"]
    assert facts["batch_invariance"]["holds"]


@pytest.mark.parametrize("copies", [False, True])
def test_lorys_own_mean_is_found_to_look_ahead_and_uniform_is_not(copies):
    own, uniform = (receipt_of(lory(f), copies)["causality"] for f in ("own_mean", "uniform"))
    assert own["broken"] == ["inside the first segment"]
    assert own["max_logit_change"] > 10 * receipts.TOLERANCE
    assert uniform["holds"] and uniform["broken"] == []


def test_a_model_that_reads_its_neighbours_fails(monkeypatch):
    model = mixture_of(btx(top_k(1)), [model_of(DENSE, seed=i) for i in range(EXPERTS)])
    forward = model.layers[0].ffn.forward
    across = lambda x, normed, context: forward(x + x.mean(0), normed, context)  # noqa: E731
    monkeypatch.setattr(model.layers[0].ffn, "forward", across)
    facts = receipt(model, {}, {"law": text()})
    assert not facts["batch_invariance"]["holds"]


def test_changes_leave_what_they_must():
    rows = text(3, 20)
    changed, held = receipts.suffix_change(rows, 7)
    assert held[:, :7].all() and not held[:, 7:].any()
    assert torch.equal(changed[held], rows[:, :-1][held])
    assert not torch.equal(changed, rows[:, :-1])
    changed, held = receipts.row_change(rows)
    assert torch.equal(changed[0], rows[0, :-1])
    assert not torch.equal(changed[1:], rows[1:, :-1])
