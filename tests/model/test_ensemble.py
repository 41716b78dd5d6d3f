"""Branch-Train-Merge: its posterior against whole vectors, and the laws that every system keeps."""

import pytest
import torch

from bam_lab.cost.flops import per_token
from bam_lab.cost.params import count
from bam_lab.model import checkpoint
from bam_lab.model.ensemble import Ensemble, mixed_reference, posterior_reference
from bam_lab.model.trace import counted_flops
from bam_lab.model.transformer import initialise
from bam_lab.spec.methods import BTMMethod
from tests.model.cases import DENSE, shape, text

EXPERTS = 3


def btm(top_k=2, temperature=0.1):
    return BTMMethod(method="btm", top_k=top_k, temperature=temperature)


def ensemble_of(method, seed=0, **changes):
    """Return random models and statistics of a vocabulary of 61."""
    model = Ensemble(shape(**changes), method, EXPERTS)
    generator = torch.Generator().manual_seed(seed)
    for expert in model.experts:
        initialise(expert, generator)
    model.idf.copy_(1 + 3 * torch.rand(61, generator=generator))
    model.centroids.copy_(torch.rand(EXPERTS, 61, generator=generator) ** 4)
    return model


METHODS = {f"top-{k}": btm(k) for k in (1, 2, EXPERTS)}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_running_sums_give_the_posterior_of_whole_vectors(method):
    model, tokens = ensemble_of(method), text(2, 60)
    posterior = model.posterior(tokens)
    torch.testing.assert_close(posterior, posterior_reference(model, tokens))
    assert (posterior > 0).sum(-1).eq(method.top_k).all()
    torch.testing.assert_close(posterior.sum(-1), torch.ones(2, 60))
    assert posterior.argmax(-1).unique().numel() > 1, "the text must move between experts"


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_mixture_is_that_of_whole_distributions(method):
    model, tokens = ensemble_of(method), text(2, 61)
    wanted = mixed_reference(model, tokens[:, :-1])
    torch.testing.assert_close(model.log_probs(tokens[:, :-1]), wanted)
    nats = -wanted.gather(-1, tokens[:, 1:, None])[..., 0]
    torch.testing.assert_close(model.token_nats(tokens[:, :-1], tokens[:, 1:]), nats.detach())


def test_a_sure_posterior_is_one_expert():
    """The others' training text shares no token with this one."""
    model, tokens = ensemble_of(btm(2, temperature=0.01)), text(2, 60) % 50
    model.centroids[0, :50] = model.centroids[2, :50] = 0.0
    model.centroids[1] += 0.5
    assert (model.posterior(tokens)[..., 1] > 1 - 1e-6).all()
    expert = model.experts[1]
    alone = expert.logits(expert(tokens).hidden).log_softmax(-1)
    torch.testing.assert_close(model.log_probs(tokens), alone)


def test_equal_experts_are_that_model():
    model, tokens = ensemble_of(btm(2)), text(2, 60)
    for expert in model.experts:
        expert.load_state_dict(model.experts[0].state_dict())
    alone = model.experts[0].logits(model.experts[0](tokens).hidden).log_softmax(-1)
    torch.testing.assert_close(model.log_probs(tokens), alone)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_causality_and_batch_invariance(method):
    model, tokens = ensemble_of(method), text()
    before = model.log_probs(tokens)
    for t in (1, 63, 64, 99):
        changed = tokens.clone()
        changed[:, t:] = (changed[:, t:] + 7) % 61
        after = model.log_probs(changed)
        torch.testing.assert_close(after[:, :t], before[:, :t])
        assert not torch.allclose(after[:, t:], before[:, t:])
    changed = tokens.clone()
    changed[1:] = (changed[1:] + 7) % 61
    torch.testing.assert_close(model.log_probs(changed)[0], before[0])
    torch.testing.assert_close(model.log_probs(tokens[:1])[0], before[0])


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_cost_is_what_runs(method):
    model, tokens = ensemble_of(method), text(2, 128)
    counted = per_token(model.spec, method, EXPERTS, 128)
    ran = counted_flops(lambda: model.token_nats(tokens, tokens))
    assert ran == tokens.numel() * counted.executed_forward
    assert counted.executed_training == counted.model_training == 0
    one = per_token(model.spec, DENSE, 1, 128)
    assert counted.model_forward < EXPERTS * one.model_forward or method.top_k == EXPERTS
    assert count(model.spec, method, EXPERTS).total == sum(p.numel() for p in model.parameters())


def test_on_disk(tmp_path):
    model, tokens = ensemble_of(btm()), text()
    checkpoint.save(model.state_dict(), model.spec, model.method, EXPERTS, tmp_path)
    again = checkpoint.load_any(tmp_path)
    assert isinstance(again, Ensemble) and again.method == model.method
    assert torch.equal(again.log_probs(tokens), model.log_probs(tokens))
    with pytest.raises(AssertionError, match="holds an ensemble"):
        checkpoint.load(tmp_path)


def test_bf16_mixes_in_float32():
    model, tokens = ensemble_of(btm()), text()
    exact = model.token_nats(tokens, tokens)
    with torch.autocast("cpu", torch.bfloat16):
        reduced = model.token_nats(tokens, tokens)
    assert reduced.dtype == torch.float32
    assert (reduced - exact).abs().median() < 0.05 * exact.median()
