"""Gates, choices and what the routers' own losses push."""

import pytest
import torch

from bam_lab.errors import SpecError
from bam_lab.model.ffn import FFNExperts
from bam_lab.model.losses import balance_loss, z_loss
from bam_lab.model.router import Routing, route
from tests.model.cases import EXPERTS, ROUTERS, SOFT, bam, model_of, shape, text, top_k


def random_routing(router, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 50, 16, generator=generator)
    return route(x, torch.randn(EXPERTS, 16, generator=generator), router)


@pytest.mark.parametrize("name", ROUTERS)
def test_gates_are_zero_where_not_chosen(name):
    routing = random_routing(ROUTERS[name])
    chosen = torch.zeros_like(routing.gates).scatter(-1, routing.chosen, 1.0).bool()
    assert (routing.gates[~chosen] == 0).all()
    assert (routing.gates[chosen] > 0).all()


def test_softmax_then_top_k_keeps_the_probabilities():
    routing = random_routing(top_k(2))
    probabilities = routing.logits.softmax(-1)
    kept = routing.gates > 0
    torch.testing.assert_close(routing.gates[kept], probabilities[kept])
    assert (routing.gates.sum(-1) < 1).all()


@pytest.mark.parametrize("router", [SOFT, top_k(2, renormalize=True)])
def test_renormalised_and_soft_gates_sum_to_one(router):
    sums = random_routing(router).gates.sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_top_k_then_softmax_is_a_softmax_over_the_chosen():
    routing = random_routing(top_k(2, renormalize=True))
    best = routing.logits.topk(2).values.softmax(-1)
    torch.testing.assert_close(routing.gates.gather(-1, routing.chosen), best)


@pytest.mark.parametrize("renormalize", [True, False])
def test_top_k_of_all_experts_is_soft(renormalize):
    soft = random_routing(SOFT)
    every = random_routing(top_k(EXPERTS, renormalize))
    torch.testing.assert_close(every.gates, soft.gates)
    tokens = text()
    for kv in ("shared", "per_expert"):
        wanted = model_of(bam(kv, SOFT, SOFT))
        got = model_of(bam(kv, top_k(EXPERTS, renormalize), top_k(EXPERTS, renormalize)))
        torch.testing.assert_close(got(tokens).hidden, wanted(tokens).hidden)


def test_top_1_renormalised_is_refused():
    with pytest.raises(SpecError, match=r"renormalize must be false for top_k 1.*no gradient"):
        FFNExperts(shape(), top_k(1, renormalize=True), EXPERTS)


def test_more_choices_than_experts_are_refused():
    with pytest.raises(SpecError, match="top_k must be at most 4 experts, got 5"):
        FFNExperts(shape(), top_k(5), EXPERTS)


def even_routing(active=1):
    """Send each expert as many tokens, with flat logits."""
    chosen = (torch.arange(8)[:, None] + torch.arange(active)) % EXPERTS
    logits = torch.zeros(1, 8, EXPERTS)
    gates = torch.zeros_like(logits).scatter(-1, chosen[None], 1 / active)
    return Routing(logits, gates, chosen[None])


@pytest.mark.parametrize("form", ["tokens", "gates"])
def test_balance_loss_is_one_when_even(form):
    assert balance_loss(even_routing(), form) == 1


def test_balance_loss_of_tokens_counts_each_choice():
    """f_i is a share of tokens, so top-2 sends 2 in all (the papers' form is for top-1)."""
    assert balance_loss(even_routing(active=2), "tokens") == 2
    assert balance_loss(even_routing(active=2), "gates") == 1


@pytest.mark.parametrize("form", ["tokens", "gates"])
@pytest.mark.parametrize("k", [1, 2])
def test_balance_loss_lowers_the_overloaded_expert(form, k):
    logits = torch.randn(4, 64, EXPERTS, generator=torch.Generator().manual_seed(0)) * 0.1
    logits[..., 2] += 2.0
    logits.requires_grad_()
    values, chosen = logits.softmax(-1).topk(k)
    routing = Routing(logits, torch.zeros_like(logits).scatter(-1, chosen, values), chosen)
    (gradient,) = torch.autograd.grad(balance_loss(routing, form), logits)
    push = -gradient.sum((0, 1))
    assert push[2] < 0
    assert (push[[0, 1, 3]] > 0).all()


def test_balance_loss_by_hand():
    """Two tokens of expert 0, one of expert 1: f = (2/3, 1/3)."""
    logits = torch.tensor([[[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]]])
    probabilities = logits.softmax(-1)
    values, chosen = probabilities.topk(1)
    routing = Routing(logits, torch.zeros_like(logits).scatter(-1, chosen, values), chosen)
    p = probabilities.mean((0, 1))
    torch.testing.assert_close(balance_loss(routing, "tokens"), 2 * (2 * p[0] + p[1]) / 3)
    u0 = (probabilities[0, 0, 0] + probabilities[0, 1, 0]) / 3
    u1 = probabilities[0, 2, 1] / 3
    torch.testing.assert_close(balance_loss(routing, "gates"), 2 * (u0 * p[0] + u1 * p[1]))


def test_z_loss_by_hand():
    routing = even_routing()
    torch.testing.assert_close(z_loss(routing), torch.tensor(4.0).log() ** 2)
    shifted = routing._replace(logits=routing.logits + 1)
    torch.testing.assert_close(z_loss(shifted), (torch.tensor(4.0).log() + 1) ** 2)
