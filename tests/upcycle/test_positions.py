"""Learned positions: what the language-model loss teaches those of the first segment (B15)."""

import pytest
import torch

from bam_lab.record.proofs import verdicts
from bam_lab.upcycle.proofs_gradients import position_facts
from bam_lab.upcycle.receipt import prove
from tests.model.cases import DENSE, METHODS, SEGMENT, model_of, text

RULES = ("lory-own_mean", "lory-bos", "lory-uniform")


@pytest.mark.parametrize("name", RULES)
def test_positions_of_the_first_segment_learn(name):
    """Under every rule, and as much as later ones: their tokens have losses of their own."""
    model, rows = model_of(METHODS[name], "learned"), text(3, 6 * SEGMENT + 1)
    facts = position_facts(model, rows)
    assert facts["without"] == 0
    assert facts["first_segment"] > 0.5 * facts["later"] > 0


def test_norms_are_the_gradients():
    """Against the whole gradient; positions beyond the text have none."""
    model, rows = model_of(METHODS["lory-uniform"], "learned"), text(2, 3 * SEGMENT + 1)
    hidden = model(rows[:, :-1]).hidden  # nothing is drawn in training: the same pass
    logits = model.logits(hidden).flatten(0, 1)
    torch.nn.functional.cross_entropy(logits, rows[:, 1:].flatten()).backward()
    norms = model.position.grad.norm(dim=1)
    facts = position_facts(model, rows)
    assert facts["first_segment"] == pytest.approx(float(norms[:SEGMENT].mean()))
    assert facts["later"] == pytest.approx(float(norms[SEGMENT : 3 * SEGMENT].mean()))
    assert (norms[3 * SEGMENT :] == 0).all()


def test_a_position_that_learns_nothing_is_found():
    model, rows = model_of(METHODS["lory-bos"], "learned"), text(2, 3 * SEGMENT + 1)
    model.position.register_hook(lambda gradient: gradient.index_fill(0, torch.tensor([2, 5]), 0.0))
    assert position_facts(model, rows)["without"] == 2


@pytest.mark.parametrize("name", ["dense", "lory-own_mean"])
def test_receipts_of_learned_positions_hold_it(name):
    method = DENSE if name == "dense" else METHODS[name]
    facts = prove(model_of(method, "learned"), (), {"law": text(2, 61)})
    (found,) = [v for v in verdicts(facts) if v.proof == "positions learn"]
    assert found.outcome == "holds"
    assert ("first segment" in found.found) == (name != "dense")
    rope = prove(model_of(method), (), {"law": text(2, 61)})
    assert "positions learn" not in [v.proof for v in verdicts(rope)]
