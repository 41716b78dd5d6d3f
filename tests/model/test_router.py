"""Gates, choices and what the routers' own losses push."""

import itertools
from math import ceil, exp

import pytest
import torch

from bam_lab.errors import SpecError
from bam_lab.model.balance import move_biases, move_l1_weight, sparsity
from bam_lab.model.block import LayerRouting
from bam_lab.model.context import Draw
from bam_lab.model.facts import routing_facts
from bam_lab.model.ffn import FFNExperts
from bam_lab.model.router import Routing, route, route_by_hash
from bam_lab.model.router_losses import balance_loss, z_loss
from bam_lab.model.transformer import Output
from tests.model.cases import (
    EXPERTS,
    FFN_ROUTERS,
    METHODS,
    ROUTERS,
    SOFT,
    bam,
    btx,
    context_of,
    expert_choice,
    model_of,
    relu,
    sample,
    shape,
    sparse_upcycling,
    text,
    top_k,
)


def draw(step=100, seed=0):
    return Draw(step, torch.Generator().manual_seed(seed))


def random_routing(router, seed=0, training=None, rows=2, tokens=50):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, tokens, 16, generator=generator)
    return route(x, torch.randn(EXPERTS, 16, generator=generator), router, training)


LINEAR = {name: r for name, r in (ROUTERS | FFN_ROUTERS).items() if "hash" not in name}


@pytest.mark.parametrize("training", [None, draw()], ids=["inference", "training"])
@pytest.mark.parametrize("name", LINEAR)
def test_gates_are_zero_where_not_chosen(name, training):
    routing = random_routing(LINEAR[name], training=training)
    chosen, kept = routing.chosen, torch.ones_like(routing.chosen, dtype=torch.bool)
    kept = kept if routing.kept is None else routing.kept
    runs = torch.zeros_like(routing.gates).scatter_add(-1, chosen, kept.float()).bool()
    assert (routing.gates[~runs] == 0).all()
    assert (routing.gates[runs] > 0).all()


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
    with pytest.raises(
        SpecError, match=r"renormalize must be false with top_k 1, got true.*no gradient"
    ):
        FFNExperts(shape(), top_k(1, renormalize=True), EXPERTS)


def test_more_choices_than_experts_are_refused():
    with pytest.raises(SpecError, match="top_k must be at most the number of experts 4, got 5"):
        FFNExperts(shape(), top_k(5), EXPERTS)


def test_a_limit_without_effect_is_refused_in_code_too():
    with pytest.raises(SpecError, match=r"router\.capacity_factor must be below.*4, got 4"):
        FFNExperts(shape(), top_k(1, capacity_factor=4.0), EXPERTS)


@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("factor", [0.3, 1.0, 1.5, 2.5])
def test_capacity_equals_the_loop(factor, renormalize):
    """Row by row, token by token, best choice first, each expert takes what it has room for."""
    free = random_routing(top_k(2, renormalize))
    routing = random_routing(top_k(2, renormalize, capacity_factor=factor), training=draw())
    room = [ceil(factor * 100 / EXPERTS)] * EXPERTS
    gates, kept = torch.zeros_like(free.gates), torch.zeros_like(free.chosen, dtype=torch.bool)
    for row, token, choice in itertools.product(range(2), range(50), range(2)):
        expert = int(free.chosen[row, token, choice])
        if room[expert]:
            room[expert] -= 1
            kept[row, token, choice] = True
            gates[row, token, expert] = free.gates[row, token, expert]
    assert torch.equal(routing.kept, kept) and torch.equal(routing.gates, gates)
    assert kept.all() == (factor == 2.5)


def test_capacity_limits_training_alone():
    free = random_routing(top_k(1))
    routing = random_routing(top_k(1, capacity_factor=0.5))
    assert routing.kept is None and torch.equal(routing.gates, free.gates)


@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("group", ["batch", "sequence"])
@pytest.mark.parametrize(("factor", "tokens"), [(1.0, 50), (2.0, 50), (1.3, 7)])
def test_expert_choice_equals_the_loop(factor, tokens, group, renormalize):
    """Each expert goes through its tokens from the likeliest on, until it is full."""
    router = expert_choice(factor, group=group, renormalize=renormalize)
    routing = random_routing(router, training=draw(), tokens=tokens)
    scores = routing.logits.softmax(-1)
    gates = torch.zeros_like(scores)
    places = list(itertools.product(range(2), range(tokens)))
    groups = [places] if group == "batch" else [places[:tokens], places[tokens:]]
    for own, expert in itertools.product(groups, range(EXPERTS)):
        ranked = sorted(own, key=lambda at: -float(scores[at][expert]))
        for row, token in ranked[: ceil(factor * len(own) / EXPERTS)]:
            gates[row, token, expert] = scores[row, token, expert]
    if renormalize:
        sums = gates.sum(-1, keepdim=True)
        gates = torch.where(sums > 0, gates / sums, 0.0)
    torch.testing.assert_close(routing.gates, gates)
    assert torch.equal(routing.kept, gates > 0)


def test_experts_do_not_choose_at_inference():
    one = random_routing(expert_choice(inference_top_k=2))
    other = random_routing(top_k(2))
    assert one.kept is None
    assert torch.equal(one.gates, other.gates) and torch.equal(one.chosen, other.chosen)


@pytest.mark.parametrize("renormalize", [True, False])
def test_a_bias_chooses_and_does_not_weigh(renormalize):
    """Probabilities (.6, .3, .1) and a bias of .25 for the last: it displaces the second of two."""
    x = torch.tensor([[[0.6, 0.3, 0.1]]]).log()
    router, bias = top_k(2, renormalize, bias_rate=0.1), torch.tensor([0.0, 0.0, 0.25])
    routing = route(x, torch.eye(3), router, bias=bias)
    assert set(routing.chosen[0, 0].tolist()) == {0, 2}
    wanted = torch.tensor([0.6, 0.0, 0.1]) / (0.7 if renormalize else 1)
    torch.testing.assert_close(routing.gates[0, 0], wanted)
    unbiased = route(x, torch.eye(3), router, bias=torch.zeros(3))
    torch.testing.assert_close(unbiased.gates, route(x, torch.eye(3), router).gates)


def test_a_bias_moves_against_the_load_of_a_step():
    """By its rate, whatever the excess, and in routed layers only."""
    method = sparse_upcycling("every_other", top_k(1, bias_rate=0.25))
    model, tokens = model_of(method), text()
    output = model(tokens, draw())
    load = torch.bincount(output.routings[1].ffn.chosen.flatten(), minlength=EXPERTS)
    move_biases(model, output)
    bias = model.layers[1].ffn.bias
    assert torch.equal(bias, 0.25 * (load.float().mean() - load).sign())
    assert bias.abs().max() > 0 and model(tokens).routings[1].ffn.chosen.shape[-1] == 1
    assert "layers.1.ffn.bias" in model.state_dict() and "layers.0.ffn.bias" not in dict(
        model.named_buffers()
    )


def test_bias_balances_without_a_loss():
    """From one expert far ahead to near even shares, with the weights as they were."""
    model, tokens = model_of(btx(top_k(1, bias_rate=0.02))), text()
    with torch.no_grad():
        for layer in model.layers:
            layer.ffn.router *= 0.3
    before = [routing_facts(model(tokens))["load_max_ffn"]]
    for _ in range(60):
        output = model(tokens, draw())
        move_biases(model, output)
    after = routing_facts(output)["load_max_ffn"]
    assert after < 0.32 < before[0]


def test_relu_gates_are_the_positive_logits():
    router = relu(2)
    routing = route(torch.tensor([[[1.5, -2.0, 0.0], [-1.0, -1.0, -1.0]]]), torch.eye(3), router)
    assert routing.gates.tolist() == [[[1.5, 0.0, 0.0], [0.0, 0.0, 0.0]]]
    assert routing.kept.tolist() == [[[True, False, False], [False, False, False]]]
    assert routing_facts(output_of(routing))["dropped_ffn"] == 0.5


def output_of(routing):
    return Output(torch.zeros(1, 2, 16), (LayerRouting(None, routing),))


@pytest.mark.parametrize(("active", "factor"), [(1, 1.2), (3, 1 / 1.2)])
def test_the_l1_weight_moves_towards_the_target(active, factor):
    """About half of the gates are open: too many for one expert a token, too few for three."""
    model, tokens = model_of(btx(relu(active))), text()
    output = model(tokens, draw())
    assert 0.3 < sparsity(output) < 0.7
    move_l1_weight(model, output)
    assert float(model.l1_weight) == pytest.approx(1e-8 * factor)
    assert "l1_weight" in model.state_dict()
    model.l1_weight.fill_(torch.finfo(torch.float32).tiny)
    move_l1_weight(model, output)
    assert model.l1_weight > 0


def test_tokens_that_no_expert_takes_go_on():
    """All gates are closed, as may happen to a single token of generation; gradients are 0."""
    model = model_of(btx(relu()))
    with torch.no_grad():
        for layer in model.layers:
            layer.ffn.router.zero_()
    x = torch.randn(2, 3, 16, requires_grad=True)
    y, routing = model.layers[0].ffn(x, x, context_of(3))
    assert not y.any() and not routing.kept.any()
    assert y.shape == x.shape and y.dtype == torch.float32
    assert model.logits(model(text()).hidden).isfinite().all()


def test_samples_follow_the_gumbel_softmax():
    """Frequencies are softmax(logits) at any temperature; the gate is the sample's own value."""
    router = sample(anneal_rate=0.01)
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    routing = route(logits.expand(1, 100_000, 4), torch.eye(4), router, draw(step=20))
    shares = torch.bincount(routing.chosen.flatten(), minlength=4) / 100_000
    torch.testing.assert_close(shares, logits.softmax(-1), rtol=0.03, atol=0.002)
    noise = -torch.empty(1, 100_000, 4).exponential_(generator=draw().generator).log()
    soft = ((logits + noise) / exp(-0.2)).softmax(-1)
    value, chosen = soft.max(-1)
    assert torch.equal(routing.chosen[..., 0], chosen)
    torch.testing.assert_close(routing.gates.sum(-1), value)


@pytest.mark.parametrize(("step", "temperature"), [(0, 1.0), (5_000, exp(-0.5)), (90_000, 0.5)])
def test_temperature_falls_to_its_floor(step, temperature):
    """BTX's max(0.5, exp(-1e-4 t)): the noise of a step is the same, its gates sharpen."""
    logits = torch.tensor([1.0, 0.0])
    routing = route(logits.expand(1, 50, 2), torch.eye(2), sample(), draw(step))
    noise = -torch.empty(1, 50, 2).exponential_(generator=draw().generator).log()
    wanted = ((logits + noise) / temperature).softmax(-1).amax(-1)
    torch.testing.assert_close(routing.gates.amax(-1), wanted)


def test_straight_through_is_one_with_the_soft_values_gradient():
    x = torch.randn(1, 50, EXPERTS, generator=torch.Generator().manual_seed(0)).requires_grad_()
    gradients = []
    for estimator in ("soft_value", "straight_through"):
        routing = route(x, torch.eye(EXPERTS), sample(estimator), draw())
        gates = routing.gates.sum(-1)
        gradients += torch.autograd.grad((gates * torch.arange(50)).sum(), x)
    torch.testing.assert_close(gates, torch.ones_like(gates))
    torch.testing.assert_close(*gradients)
    assert gradients[0].norm() > 0


def test_a_sample_is_the_likeliest_expert_at_inference():
    routing = random_routing(sample())
    assert torch.equal(routing.chosen[..., 0], routing.logits.argmax(-1))
    assert (routing.gates.amax(-1) == 1).all()


@pytest.mark.parametrize("kind", ["btx-sample-soft-first", "btx-sample"])
def test_the_first_routed_layer_may_be_soft(kind):
    first, second = (layer.ffn for layer in model_of(METHODS[kind])(text(), draw()).routings)
    assert first.chosen.shape[-1] == (EXPERTS if kind == "btx-sample-soft-first" else 1)
    assert second.chosen.shape[-1] == 1


def test_a_hash_sends_a_token_by_its_id():
    table = torch.tensor([2, 0, 3])
    routing = route_by_hash(torch.tensor([[0, 1, 2, 1]]), table, EXPERTS)
    assert routing.chosen[0, :, 0].tolist() == [2, 0, 3, 0]
    assert torch.equal(routing.gates, routing.logits.softmax(-1))
    assert (routing.gates.gather(-1, routing.chosen) == 1).all()


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
def test_balance_of_groups_is_the_mean_of_their_losses(form):
    routing = random_routing(top_k(2), rows=6)
    for rows in (1, 2, 6):
        parts = [
            Routing(*(field[i : i + rows] for field in routing[:3])) for i in range(0, 6, rows)
        ]
        alone = torch.stack([balance_loss(part, form) for part in parts]).mean()
        torch.testing.assert_close(balance_loss(routing, form, rows), alone)
    assert not torch.allclose(balance_loss(routing, form, 1), balance_loss(routing, form))
    with pytest.raises(ValueError, match=r"micro_batch_sequences must divide .* 6 .*, got 4"):
        balance_loss(routing, form, 4)


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
    """Two tokens of expert 0, one of expert 1: f = (2/3, 1/3), which the gradient passes by."""
    logits = torch.tensor([[[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]]], requires_grad=True)
    probabilities = logits.softmax(-1)
    values, chosen = probabilities.topk(1)
    routing = Routing(logits, torch.zeros_like(logits).scatter(-1, chosen, values), chosen)
    p = probabilities.mean((0, 1))
    u0 = (probabilities[0, 0, 0] + probabilities[0, 1, 0]) / 3
    u1 = probabilities[0, 2, 1] / 3
    wanted = {"tokens": 2 * (2 * p[0] + p[1]) / 3, "gates": 2 * (u0 * p[0] + u1 * p[1])}
    for form, by_hand in wanted.items():
        loss = balance_loss(routing, form)
        torch.testing.assert_close(loss, by_hand)
        got, want = (torch.autograd.grad(x, logits, retain_graph=True) for x in (loss, by_hand))
        torch.testing.assert_close(got, want)


def test_z_loss_by_hand():
    routing = even_routing()
    torch.testing.assert_close(z_loss(routing), torch.tensor(4.0).log() ** 2)
    shifted = routing._replace(logits=routing.logits + 1)
    torch.testing.assert_close(z_loss(shifted), (torch.tensor(4.0).log() + 1) ** 2)
