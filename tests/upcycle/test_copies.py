"""Copies that are not whole copies: channels drawn anew, cut in parts, some experts drawn anew."""

import pytest
import torch

from bam_lab.errors import SpecError
from bam_lab.model.transformer import Transformer
from bam_lab.spec.experts import experts_of, num_experts_of
from bam_lab.upcycle.execute import upcycle
from bam_lab.upcycle.origins import origins
from tests.model.cases import (
    BLOCKS,
    DENSE,
    EXPERTS,
    FFN_ROUTERS,
    ROUTERS,
    SOFT,
    context_of,
    model_of,
    shape,
    sparse_upcycling,
    top_k,
)
from tests.upcycle.test_laws import generator, logits, mix

WIDE = {"ffn_dim": 400, "dim": 64, "num_layers": 1}


def made(seed=0, spec=None, **settings):
    """Return the seed model's state and what its copies became."""
    spec = spec or shape()
    dense = model_of(DENSE, **{k: getattr(spec, k) for k in ("ffn_dim", "dim", "num_layers")})
    method = sparse_upcycling("all", **settings)
    return dense.state_dict(), upcycle(method, spec, [dense.state_dict()], generator(seed))


@pytest.mark.parametrize("share", [0.5, 0.1, 1.0])
def test_a_share_of_each_copys_channels_is_drawn_anew(share):
    """Rows of gate and up and the columns of down are one channel; the others are copied."""
    dense, state = made(spec=shape(**WIDE), reinit_share=share)
    moved = []
    for expert in range(EXPERTS):
        gate, up, down = (state[f"layers.0.ffn.{n}"][expert] for n in ("gate", "up", "down"))
        channels = (gate != dense["layers.0.ffn.gate"]).any(1)
        assert torch.equal(channels, (up != dense["layers.0.ffn.up"]).any(1))
        assert torch.equal(channels, (down != dense["layers.0.ffn.down"]).any(0))
        assert int(channels.sum()) == share * 400
        moved.append(channels)
    if share < 1:
        assert not torch.equal(moved[0], moved[1])


def test_channels_are_drawn_from_the_statistics_of_the_weights_they_replace():
    """Each tensor's own; moved and stretched here, so that another rule would show."""
    spec = shape(**WIDE)
    dense = model_of(DENSE, **WIDE).state_dict()
    for i, name in enumerate(("gate", "up", "down"), 1):
        dense[f"layers.0.ffn.{name}"] = dense[f"layers.0.ffn.{name}"] * i + i
    method = sparse_upcycling("all", reinit_share=1.0)
    state = upcycle(method, spec, [dense], generator())
    for name in ("gate", "up", "down"):
        old, new = dense[f"layers.0.ffn.{name}"], state[f"layers.0.ffn.{name}"]
        for expert in new:
            assert expert.mean() == pytest.approx(float(old.mean()), abs=0.02)
            assert expert.std() == pytest.approx(float(old.std()), rel=0.03)
            assert not torch.allclose(expert, old, atol=0.1)


def test_what_is_drawn_of_copies_moves_nothing_else():
    _, plain = made()
    for settings in ({"reinit_share": 0.5}, {"copied_experts": 2}):
        _, other = made(**settings)
        _, again = made(**settings)
        _, seeded = made(seed=1, **settings)
        for name, tensor in other.items():
            assert torch.equal(again[name], tensor), name
            if ".ffn." in name and not name.endswith("router"):
                assert not torch.equal(plain[name], tensor), name
                assert not torch.equal(seeded[name], tensor), name
            else:
                assert torch.equal(plain[name], tensor), name


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("granularity", [2, 3, 4])
@pytest.mark.parametrize("copies", [1, 2])
def test_whole_groups_of_parts_are_the_seed_model(block, granularity, copies):
    """Parts of a copy share their logit and so a gate / granularity; down is scaled by it."""
    seed_model = model_of(DENSE, block)
    settings = {"num_experts": 3, "granularity": granularity}
    for router in (SOFT, top_k(copies * granularity, renormalize=True)):
        mixture = mix(sparse_upcycling("all", router, **settings), [seed_model])
        assert mixture.num_experts == 3 * granularity
        torch.testing.assert_close(logits(mixture), logits(seed_model))
        with torch.no_grad():  # a row of its own for every part
            for layer in mixture.layers:
                layer.ffn.router.normal_(generator=generator())
        assert not torch.allclose(logits(mixture), logits(seed_model), atol=0.01)


def test_fine_grained_top_k_without_renormalising_is_scaled_by_its_gates():
    """Each layer is the seed model's times the token's sum of gates, as for whole copies."""
    seed_model = model_of(DENSE, num_layers=1)
    fine = sparse_upcycling("all", top_k(4), num_experts=3, granularity=2)
    mixture = mix(fine, [seed_model])
    x = torch.randn(2, 10, 16, generator=generator(1))
    y, routing = mixture.layers[0].ffn(x, x, context_of(10))
    scale = routing.gates.sum(-1, keepdim=True)
    assert (scale < 1).all()
    torch.testing.assert_close(y, scale * seed_model.layers[0].ffn(x, x, context_of(10))[0])


def test_parts_stand_copy_by_copy_and_share_a_router_row():
    dense, state = made(num_experts=2, granularity=3, ffn=top_k(3, True))
    router = state["layers.1.ffn.router"]
    assert router.shape == (6, 16)
    assert torch.equal(router[0], router[1]) and torch.equal(router[0], router[2])
    assert not torch.equal(router[2], router[3])
    for expert in range(6):
        rows = slice(8 * (expert % 3), 8 * (expert % 3) + 8)
        assert torch.equal(state["layers.1.ffn.up"][expert], dense["layers.1.ffn.up"][rows])
        down = 3 * dense["layers.1.ffn.down"][:, rows]
        assert torch.equal(state["layers.1.ffn.down"][expert], down)


def test_the_last_experts_are_drawn_where_only_some_are_copied():
    dense, state = made(spec=shape(**WIDE), copied_experts=3)
    for name in ("gate", "up", "down"):
        stacked = state[f"layers.0.ffn.{name}"]
        for expert in stacked[:3]:
            assert torch.equal(expert, dense[f"layers.0.ffn.{name}"])
        assert stacked[3].std() == pytest.approx(0.2, rel=0.03)  # the model's init_std
        assert not torch.allclose(stacked[3], stacked[0], atol=0.1)


def test_everything_at_once():
    """Two copies in two parts each and one drawn anew, half of each copy's channels too."""
    settings = {"num_experts": 3, "granularity": 2, "copied_experts": 2, "reinit_share": 0.5}
    method = sparse_upcycling("all", top_k(2, True), **settings)
    wanted = ("seed_model[1/2]", "seed_model[2/2]") * 2 + ("scratch",) * 2
    assert experts_of(method, ()) == wanted
    assert num_experts_of(method, 1) == 6
    origin = origins(method, shape(), ["seed_model"])["layers.0.ffn.down"]
    assert (origin.op, origin.anew, origin.scale, origin.shape) == ("reinit", 2, 2.0, (6, 16, 12))
    assert origin.drawn
    dense, state = made(ffn=top_k(2, True), **settings)
    kept = state["layers.0.ffn.up"][0] == dense["layers.0.ffn.up"][:12]
    assert int(kept.all(1).sum()) == 6


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"granularity": 5}, "method.granularity must divide ffn_dim 24, got 5"),
        ({"granularity": 3}, "method.granularity must divide top_k 2, got 3"),
        ({"granularity": 2, "ffn": ROUTERS["top-1"]}, "method.granularity must divide top_k 1"),
        ({"reinit_share": 0.01}, "method.reinit_share must give a whole channel of 24, got 0.01"),
        ({"copied_experts": 4}, "method.copied_experts must be below num_experts 4, got 4"),
    ],
)
def test_copies_that_cannot_be(settings, problem):
    method = sparse_upcycling("all", **settings)
    with pytest.raises(SpecError, match=problem):
        Transformer(shape(), method, num_experts_of(method, 1))


def test_routers_that_ask_no_logits_take_whole_copies():
    hashed = FFN_ROUTERS["hash-random"]
    with pytest.raises(SpecError, match="granularity must be 1 with a router that does not choose"):
        Transformer(shape(), sparse_upcycling("all", hashed, granularity=2), 8)
