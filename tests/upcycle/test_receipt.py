"""The proofs: they come out as declared for every system, and fail on models that are broken."""

import json

import pytest
import torch

from bam_lab.model import transformer
from bam_lab.model.checkpoint import build
from bam_lab.record.proofs import verdicts
from bam_lab.spec.experts import num_experts_of, num_sources
from bam_lab.spec.laws import broken_identities, broken_laws, mixes_documents
from bam_lab.upcycle import proofs_laws
from bam_lab.upcycle.execute import upcycle
from bam_lab.upcycle.probe import TOLERANCE
from bam_lab.upcycle.receipt import prove
from tests.model.cases import (
    BLOCKS,
    CASES,
    DENSE,
    EXPERTS,
    METHODS,
    SOFT,
    bam,
    btx,
    lory,
    model_of,
    shape,
    text,
    top_k,
)

WINDOWS = {"law": text(3, 101), "code": text(2, 101, seed=2)}


def mixture_of(method, dense, block="parallel"):
    spec, states = shape(block), [model.state_dict() for model in dense]
    counts = torch.arange(spec.vocab_size)
    state = upcycle(method, spec, states, torch.Generator().manual_seed(0), counts)
    return build(spec, method, num_experts_of(method, len(states)), state)


def facts_of(method, copies=False, block="parallel"):
    count = num_sources(method, EXPERTS)
    dense = [model_of(DENSE, block, seed=0 if copies else i) for i in range(count)]
    named = [(f"model{i}", model) for i, model in enumerate(dense)]
    return prove(mixture_of(method, dense, block), named, WINDOWS)


def facts_on(model):
    return prove(model, [], WINDOWS)


def unexpected(facts):
    return [verdict for verdict in verdicts(facts) if verdict.outcome == "unexpected"]


# One block a system, in turn, and the other when upcycled: the laws themselves are tried on both in
# tests/model.
PROVED = [(name, BLOCKS[i % 2]) for i, name in enumerate(METHODS)]
UPCYCLED = [(name, BLOCKS[1 - i % 2]) for i, name in enumerate(METHODS)]
PROVED += [case for case in CASES if case[1] not in BLOCKS]


@pytest.mark.parametrize(("name", "block"), PROVED)
def test_every_proof_comes_out_as_declared(name, block):
    """What is declared to break is seen to break, and nothing else is."""
    method = METHODS[name]
    facts = facts_on(model_of(method, block))
    json.dumps(facts, allow_nan=False)
    assert unexpected(facts) == []
    for rule, laws in facts["laws"].items():
        assert set(broken_laws(method, rule)) <= set(laws)
        for law, fact in laws.items():
            assert fact["holds"] == (fact["declared"] is None), (rule, law)
    declared = broken_identities(method)
    for name, fact in facts["identities"].items():
        assert fact["holds"] == (name not in declared), name


APART = ("bam-per_expert-top-2", "btx-top-1-capacity", "lory-bos", "lory-prefix-bos", "smear")


@pytest.mark.parametrize("name", APART)
def test_document_invariance_is_proved_where_attention_stays_inside(name):
    """What mixes documents is declared, and seen."""
    assert all("document invariance" not in laws for laws in facts_on_laws(name).values())
    found = facts_on_laws(name, cross_document_attention=False)
    for rule, laws in found.items():
        fact = laws["document invariance"]
        assert fact["declared"] == mixes_documents(METHODS[name], rule)
        if not fact["declared"] or "capacity" not in name:  # no place need run out here
            assert fact["holds"] == (fact["declared"] is None), rule


def facts_on_laws(name, **changes):
    return proofs_laws.laws(model_of(METHODS[name], **changes), WINDOWS["law"])


def test_attention_that_crosses_documents_is_found(monkeypatch):
    """Where it should not: the proof is of the model that runs."""
    monkeypatch.setattr(transformer, "document_starts", torch.zeros_like)
    laws = facts_on_laws("btx-top-1", cross_document_attention=False)
    assert not any(found["document invariance"]["holds"] for found in laws.values())


@pytest.mark.parametrize(("name", "block"), UPCYCLED)
def test_receipts_of_upcycled_models(name, block):
    method = METHODS[name]
    facts = facts_of(method, block=block)
    assert unexpected(facts) == []
    dense = [f"model{i}" for i in range(num_sources(method, EXPERTS))]
    assert set(facts["step0_nats"]) == {"law", "code"}
    assert set(facts["step0_nats"]["law"]) == {"mixture", *dense}
    assert facts["coverage"]["tensors"] == sum(facts["coverage"]["by_origin"].values())
    for gate_sum in facts["gate_sum"].values():
        # Routers start near uniform: normed inputs of 16 numbers times a spread of 0.02.
        assert gate_sum["measured"] == pytest.approx(gate_sum["predicted"], abs=0.05)


# Logits of every system are compared in test_laws.py; here it is the number on the receipt.
COPIES = (
    "btx-soft",
    "btx-top-2-renormalized",
    "bam-shared-soft-ffn-top-2-renormalized",
    "lory-own_mean",
    "smear-copies",
)


@pytest.mark.parametrize("name", COPIES)
def test_copies_give_the_seed_models_loss_where_gates_sum_to_one(name):
    nats = facts_of(METHODS[name], copies=True)["step0_nats"]["law"]
    assert nats["mixture"] == pytest.approx(nats["model0"], abs=1e-5)


@pytest.mark.parametrize("copies", [False, True])
def test_router_gradients_are_zero_by_symmetry_where_experts_are_equal(copies):
    for method in (btx(SOFT), btx(top_k(2, renormalize=True)), lory("own_mean")):
        for gradient in facts_of(method, copies)["router_gradients"].values():
            assert gradient["zero_by_symmetry"] == copies
            assert gradient["learns"]
    for gradient in facts_of(btx(top_k(2)), copies)["router_gradients"].values():
        assert not gradient["zero_by_symmetry"]


def test_routing_facts_add_up():
    for router, sent in ((SOFT, EXPERTS), (top_k(1), 1), (top_k(2, renormalize=True), 2)):
        for routing in facts_of(btx(router))["routing"].values():
            assert sum(routing["load"]) == pytest.approx(sent)
            assert routing["dropped"] == 0
            assert 0 < routing["entropy"] <= torch.tensor(float(EXPERTS)).log() + 1e-6


def test_dense_arms_have_receipts_without_routers():
    model = model_of(DENSE)
    facts = prove(model, [("seed_model", model)], {"law": text()})
    assert unexpected(facts) == []
    assert facts.keys().isdisjoint({"router_gradients", "routing", "identities"})
    assert facts["step0_nats"]["law"]["mixture"] == facts["step0_nats"]["law"]["seed_model"]
    assert facts["coverage"]["by_origin"] == {"take": facts["coverage"]["tensors"]}


def experts():
    return [model_of(DENSE, seed=i) for i in range(EXPERTS)]


def broken_proofs(model, sources=()):
    named = [(f"model{i}", source) for i, source in enumerate(sources)]
    return {verdict.proof for verdict in unexpected(prove(model, named, WINDOWS))}


def test_a_model_that_looks_ahead_fails(monkeypatch):
    """Reverse time inside: causality must be found broken, under both rules."""
    model = mixture_of(bam("shared", SOFT), experts())
    _change_ffn(monkeypatch, lambda x: x.roll(-1, 1))
    assert broken_proofs(model) >= {"causality, training", "causality, inference"}
    assert not {p for p in broken_proofs(model) if p.startswith("batch invariance")}


def test_a_model_that_reads_its_neighbours_fails(monkeypatch):
    model = mixture_of(btx(top_k(1)), experts())
    _change_ffn(monkeypatch, lambda x: x + x.mean(0))
    assert "batch invariance, inference" in broken_proofs(model)
    assert "causality, inference" not in broken_proofs(model)


def _change_ffn(monkeypatch, change):
    from bam_lab.model.ffn import FFNExperts

    forward = FFNExperts.forward
    monkeypatch.setattr(
        FFNExperts, "forward", lambda self, x, normed, c: forward(self, change(x), normed, c)
    )


def test_a_model_that_is_not_what_its_origins_make_fails():
    dense = experts()
    model = mixture_of(btx(top_k(1)), dense)
    assert broken_proofs(model, dense) == set()
    with torch.no_grad():
        model.layers[1].ffn.up[2] = dense[1].layers[1].ffn.up
    assert broken_proofs(model, dense) == {"origins"}


def test_a_router_that_does_not_learn_fails(monkeypatch):
    from bam_lab.model import ffn

    route = ffn.route
    monkeypatch.setattr(ffn, "route", lambda x, w, *rest: route(x, w.detach(), *rest))
    found = broken_proofs(mixture_of(btx(SOFT), experts()))
    assert found >= {"gradient of the language-model loss", "routers learn"}


def test_experts_that_know_their_place_fail(monkeypatch):
    """The third expert's outputs are doubled, whoever it is."""
    from bam_lab.model import ffn

    project = ffn.project

    def doubled(x, gate, up):
        gated, upped = project(x, gate, up)
        each = upped.view(*upped.shape[:-1], gate.shape[0], -1).clone()
        each[..., 2, :] *= 2
        return gated, each.flatten(-2)

    monkeypatch.setattr(ffn, "project", doubled)
    assert broken_proofs(mixture_of(btx(SOFT), experts())) == {"permutation", "copies"}


def test_lorys_own_mean_is_found_to_look_ahead_inside_its_first_segment_alone():
    laws = facts_of(lory("own_mean"))["laws"]["inference"]
    inside = laws["causality inside the first segment"]
    assert inside["broken"] == [proofs_laws.INSIDE_FIRST]
    assert inside["max_logit_change"] > 10 * TOLERANCE
    assert laws["causality"]["holds"]
    assert facts_of(lory("uniform"))["laws"]["inference"]["causality inside the first segment"][
        "holds"
    ]


def test_every_border_is_tried():
    assert proofs_laws.places(lory("uniform"), 40) == {
        "inside the first segment": 5,
        "at border 1": 10,
        "at border 2": 20,
        "at border 3": 30,
        "inside the second segment": 15,
    }
    assert set(proofs_laws.places(DENSE, 40).values()) == {1, 20}


def test_a_limit_that_even_text_never_meets_is_seen():
    method = btx(top_k(1, capacity_factor=1.9), balance_loss=None)
    law = facts_on(model_of(method))["laws"]["training"]["batch invariance"]
    assert law["declared"] and not law["holds"]


def test_changes_leave_what_they_must():
    rows = text(3, 20)
    tokens = rows[:, :-1]
    changed, held = proofs_laws.suffix_changes(rows, 7)[0]
    assert held[-1, :7].all() and held.sum() == 7
    assert torch.equal(changed[:2], tokens[:2])
    assert torch.equal(changed[held], tokens[held])
    assert not torch.equal(changed, tokens)
    changed, held = proofs_laws.suffix_changes(rows, 7)[1]
    assert (changed[-1, 7:] == tokens[-1, -1]).all() and held.sum() == 7
    changed, held = proofs_laws.row_changes(rows)[0]
    assert torch.equal(changed[-1], tokens[-1]) and held[-1].all() and held.sum() == 19
    assert (changed[:2] != tokens[:2]).any(1).all()
    changed, held = proofs_laws.row_changes(rows)[1]
    assert torch.equal(changed[-1], tokens[-1]) and held.sum() == 19
    assert (changed[:2] == tokens[-1, -1]).all()
