"""Router losses: which a method has, how they are weighed, what they do to loads."""

import pytest
import torch

from bam_lab.model.balance import move_l1_weight, sparsity
from bam_lab.model.router import Routing
from bam_lab.model.router import top_k as top_k_routing
from bam_lab.model.router_losses import balance_loss, l1_loss, router_losses, weigh
from bam_lab.spec.routers import BalanceLoss
from tests.model.cases import (
    DENSE,
    EXPERTS,
    FFN_ROUTERS,
    ROUTERS,
    SOFT,
    bam,
    btx,
    model_of,
    relu,
    sparse_upcycling,
    text,
    top_k,
)

ATTENTION_BALANCE = [
    (ROUTERS[name], form)
    for name in ROUTERS
    for form in ("tokens", "gates")
    if (name, form) != ("soft", "tokens")
]
"""With soft routing every token is sent everywhere: the form `tokens` is constant."""


def test_router_losses_are_summed_over_layers_and_weighed():
    method = bam(
        "shared",
        SOFT,
        top_k(1),
        balance_loss=BalanceLoss(form="tokens", weight=0.5),
        attention_balance_loss=BalanceLoss(form="gates", weight=0.25),
        z_loss=0.125,
    )
    model = model_of(method, num_layers=1)
    twice = model_of(method, num_layers=1)(text())
    twice = twice._replace(routings=twice.routings * 2)
    once = router_losses(model(text()), method)
    assert set(once) == {"balance_loss_ffn", "balance_loss_attention", "z_loss"}
    for name, value in router_losses(twice, method).items():
        torch.testing.assert_close(value, 2 * once[name])
    total = 0.5 * once["balance_loss_ffn"] + 0.25 * once["balance_loss_attention"]
    torch.testing.assert_close(weigh(once, method), total + 0.125 * once["z_loss"])


@pytest.mark.parametrize("block", ["parallel", "serial"])
@pytest.mark.parametrize("kv", ["shared", "per_expert"])
@pytest.mark.parametrize(("router", "form"), [*ATTENTION_BALANCE])
def test_attention_balance_moves_attention_routers_towards_even_load(router, form, kv, block):
    """The loss alone gives the attention router a gradient, and steps against it lower it."""
    on = BalanceLoss(form=form, weight=1.0)
    method = bam(kv, router, balance_loss=None, z_loss=0.0, attention_balance_loss=on)
    model, tokens = model_of(method, block, num_layers=1), text()
    router = model.layers[0].attention.router
    curve = []
    for _ in range(20):
        losses = router_losses(model(tokens), method)
        assert set(losses) == {"balance_loss_attention"}
        loss = weigh(losses, method)
        (grad,) = torch.autograd.grad(loss, [router])
        curve.append(loss.item())
        with torch.no_grad():
            router -= 0.5 * grad
    assert curve[-1] < curve[0] - 1e-3


def test_layers_that_stay_dense_add_no_router_loss():
    method = sparse_upcycling("every_other", z_loss=0.1)
    output = model_of(method)(text())
    assert output.routings[0].ffn is None and output.routings[1].ffn is not None
    routed = output._replace(routings=output.routings[1:])
    assert router_losses(output, method) == router_losses(routed, method)
    assert set(router_losses(output, method)) == {"balance_loss_ffn", "z_loss"}


def test_l1_loss_is_the_papers():
    """Its sum over tokens, experts and layers, by a loop; loads give no gradient."""
    gates = torch.rand(2, 2, 5, EXPERTS, generator=torch.Generator().manual_seed(0)) - 0.4
    gates = gates.clamp(min=0).requires_grad_()
    routings = [Routing(own, own, None) for own in gates]
    loss, wanted = l1_loss(routings, 2), 0.0
    for layer in gates.detach():
        tokens = layer.reshape(10, EXPERTS)
        for expert in range(EXPERTS):
            load = EXPERTS / (2 * 10) * int((tokens[:, expert] > 0).sum())
            wanted += sum(load * float(gate) for gate in tokens[:, expert])
    assert loss.item() == pytest.approx(wanted / (2 * 10))
    loss.backward()
    opened = (gates > 0).float().mean((1, 2)) * EXPERTS / 2
    torch.testing.assert_close(gates.grad, opened[:, None, None].expand_as(gates) / 20)


def test_l1_loss_reaches_its_target_sparsity():
    """With the weight that each step moves, and nothing else to learn."""
    model, tokens = model_of(btx(relu(1, l1_init=1e-3))), text()
    optimizer = torch.optim.SGD([layer.ffn.router for layer in model.layers], lr=0.3)
    seen = []
    for _ in range(150):
        output = model(tokens)
        losses = router_losses(output, model.method)
        assert set(losses) == {"l1_loss_ffn"}
        loss = weigh(losses, model.method, model.l1_weight)
        seen.append(float(sparsity(output)))
        move_l1_weight(model, output)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert 0.4 < seen[0] < 0.6
    assert seen[-1] == pytest.approx(0.75, abs=0.1)


def test_absent_router_losses_are_absent():
    assert router_losses(model_of(DENSE)(text()), DENSE) == {}
    method = btx(top_k(2, True))
    assert set(router_losses(model_of(method)(text()), method)) == {"balance_loss_ffn"}
    method = btx(top_k(2, True), balance_loss=None)
    losses = router_losses(model_of(method)(text()), method)
    assert losses == {}
    assert weigh(losses, method) == 0


@pytest.mark.parametrize("name", ["hash-random", "expert-choice"])
def test_routers_that_need_no_balance_have_no_balance_loss(name):
    """And a hash no z-loss, whatever the method's default."""
    method = bam("shared", SOFT, FFN_ROUTERS[name])
    losses = router_losses(model_of(method)(text()), method)
    assert set(losses) == ({"z_loss"} if name == "expert-choice" else set())
    weigh(losses, method)


def _rank_of_two(rank, address, folder):
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    found = {}
    for form in ("tokens", "gates"):
        loss, gradient = _balance(_LOGITS[2 * rank : 2 * rank + 2], form)
        torch.distributed.all_reduce(gradient)
        found[form] = loss, gradient / 2
    torch.save(found, folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


_LOGITS = torch.randn(4, 20, 3, generator=torch.Generator().manual_seed(0))


def _balance(logits, form):
    """Return the loss of top-2 routing by these logits, and its gradient by a common factor."""
    factor = torch.ones(3, requires_grad=True)
    loss = balance_loss(top_k_routing(logits * factor, 2, False), form)
    return loss.detach(), torch.autograd.grad(loss, factor)[0]


def test_two_devices_balance_the_global_batch(tmp_path):
    """The loss is the whole batch's on each, and so is the mean of their gradients."""
    address = f"file://{tmp_path / 'meeting'}"
    torch.multiprocessing.spawn(_rank_of_two, (address, tmp_path), nprocs=2)
    for form in ("tokens", "gates"):
        wanted = _balance(_LOGITS, form)
        for rank in range(2):
            found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
            torch.testing.assert_close(found[form], wanted)
        own = _balance(_LOGITS[:2], form)[0]
        assert not torch.allclose(own, wanted[0])
