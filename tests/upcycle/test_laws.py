"""What upcycling must keep, exactly: copies, permutation, one-hot, merge of equals, coverage.

Capacity limits and expert choice would break the copies law; no such routing exists here yet.
"""

from copy import deepcopy

import pytest
import torch

from bam_lab.model.checkpoint import build
from bam_lab.model.transformer import Transformer
from bam_lab.spec.experts import num_experts_of, num_sources
from bam_lab.spec.methods import BAMMethod
from bam_lab.upcycle.execute import mean, shapes, target_shapes, upcycle
from bam_lab.upcycle.origins import (
    EXPERT_OPS,
    Origin,
    Source,
    check_coverage,
    dense_shapes,
    origins,
)
from tests.model.cases import (
    BLOCKS,
    CASES,
    DENSE,
    EXPERTS,
    METHODS,
    OF_COPIES,
    OF_EXPERTS,
    bam,
    btx,
    context_of,
    keeps_scale,
    lory,
    model_of,
    shape,
    sparse_upcycling,
    text,
    top_k,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def mix(method, dense, seed=0) -> Transformer:
    """Upcycle as many of `dense` as the method reads, with routers that have opinions."""
    method = method.model_copy(update={"router_init_std": 0.5})
    sources = dense[: num_sources(method, len(dense))]
    spec, states = dense[0].spec, [model.state_dict() for model in sources]
    return build(spec, method, len(dense), upcycle(method, spec, states, generator(seed)))


def logits(model):
    return model.logits(model(text()).hidden)


def distinct(block, count=EXPERTS):
    return [model_of(DENSE, block, seed=seed) for seed in range(count)]


@pytest.mark.parametrize(("name", "block"), CASES)
def test_copies(name, block):
    """N copies of the seed model give its logits, whatever the routers, where gates sum to 1."""
    seed_model = model_of(DENSE, block)
    mixture = mix(METHODS[name], [seed_model] * EXPERTS)
    if keeps_scale(METHODS[name]):
        torch.testing.assert_close(logits(mixture), logits(seed_model))
    else:
        assert (logits(mixture) - logits(seed_model)).abs().max() > 0.01


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("k", [1, 2])
def test_copies_under_unrenormalised_top_k_are_scaled(block, k):
    """Each layer's contribution is the seed model's times the sum of the token's gates."""
    seed_model = model_of(DENSE, block, num_layers=1)
    mixture = mix(bam("shared", top_k(k), top_k(k)), [seed_model] * EXPERTS)
    layer, dense = mixture.layers[0], seed_model.layers[0]
    x = torch.randn(2, 100, 16, generator=generator(1))
    context = context_of(100)
    for mixed, (routing, alone) in (
        (
            layer.attention(x, x, context),
            (layer.attention(x, x, context)[1], dense.attention(x, x, context)),
        ),
        (layer.ffn(x, x, context), (layer.ffn(x, x, context)[1], dense.ffn(x, x, context))),
    ):
        scale = routing.gates.sum(-1, keepdim=True)
        assert (scale < 1).all()
        torch.testing.assert_close(mixed[0], scale * alone[0])


@pytest.mark.parametrize(("name", "block"), OF_COPIES)
def test_permutation_of_copies(name, block):
    """The same on trained copies: stacked tensors and router columns moved together."""
    model, order = model_of(METHODS[name], block), [2, 0, 3, 1]
    table = origins(model.method, model.spec, ["seed_model"])
    state = model.state_dict()
    routers = {n: t[order] for n, t in state.items() if n.endswith("router")}
    experts = {n: t[order] for n, t in state.items() if table[n].op in EXPERT_OPS}
    permuted = build(model.spec, model.method, EXPERTS, state | routers | experts)
    torch.testing.assert_close(logits(permuted), logits(model))
    alone = build(model.spec, model.method, EXPERTS, state | routers)
    assert not torch.allclose(logits(alone), logits(model))


@pytest.mark.parametrize("block", BLOCKS)
def test_copies_under_a_forced_router_are_the_seed_model(block):
    """One gate takes all the probability, so that nothing is lost by not renormalising."""
    seed_model = model_of(DENSE, block)
    mixture = mix(sparse_upcycling("every_other"), [seed_model] * EXPERTS)
    for model in (mixture, seed_model):
        _add_constant_direction(model)
    _force(mixture, 2)
    torch.testing.assert_close(logits(mixture), logits(seed_model))


@pytest.mark.parametrize("block", BLOCKS)
def test_layers_that_stay_dense_are_the_seed_models(block):
    seed_model = model_of(DENSE, block, num_layers=5)
    for layers, routed in (("all", {0, 1, 2, 3, 4}), ("every_other", {1, 3}), ("last_2", {3, 4})):
        state = mix(sparse_upcycling(layers), [seed_model] * EXPERTS).state_dict()
        assert {n for n in state if n.endswith("router")} == {
            f"layers.{i}.ffn.router" for i in routed
        }
        for name, tensor in seed_model.state_dict().items():
            copied = ".ffn." in name and int(name.split(".")[1]) in routed
            wanted = tensor.expand(EXPERTS, *tensor.shape) if copied else tensor
            assert torch.equal(state[name], wanted), name


def test_noise_on_copies_moves_experts_apart_and_nothing_else():
    seed_model = model_of(DENSE)
    plain, noisy = (
        mix(sparse_upcycling("all", copy_noise_std=std), [seed_model] * EXPERTS).state_dict()
        for std in (0.0, 0.1)
    )
    for name, tensor in plain.items():
        if name.split(".")[-1] in ("gate", "up", "down"):
            noise = noisy[name] - tensor
            assert noise.std() == pytest.approx(0.1, rel=0.1)
            assert not torch.allclose(noise[0], noise[1])
        else:
            assert torch.equal(noisy[name], tensor), name


@pytest.mark.parametrize(("name", "block"), OF_EXPERTS)
def test_permutation(name, block):
    """Experts in another order, with the router's columns, give the same logits."""
    dense, order = distinct(block), [2, 0, 3, 1]
    mixture = mix(METHODS[name], dense)
    permuted = mix(METHODS[name], [dense[i] for i in order])
    state = mixture.state_dict()
    routers = {n: t[order] for n, t in state.items() if n.endswith("router")}
    permuted.load_state_dict(permuted.state_dict() | routers)
    torch.testing.assert_close(logits(permuted), logits(mixture))
    unpermuted = mix(METHODS[name], [dense[i] for i in order])
    assert not torch.allclose(logits(unpermuted), logits(mixture))


def differing_in_experts(method, block):
    """Return dense models that differ only in what the method makes experts of."""
    table = origins(method, shape(block), [str(i) for i in range(EXPERTS)])
    first, *others = distinct(block)
    for other in others:
        mixed = {n: t for n, t in first.state_dict().items() if table[n].op == "mean"}
        other.load_state_dict(other.state_dict() | mixed)
    return [first, *others]


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("first", ["own_mean", "uniform"])
def test_lory_of_copies_is_lory_of_equal_experts(block, first):
    """Made of one model or of that model four times, and equal to it under any routing."""
    seed_model = model_of(DENSE, block)
    copies = mix(lory(first, num_experts=EXPERTS), [seed_model] * EXPERTS)
    experts = mix(lory(first), [seed_model] * EXPERTS)
    for name, tensor in experts.state_dict().items():
        assert torch.equal(copies.state_dict()[name], tensor), name
    torch.testing.assert_close(logits(copies), logits(seed_model))


@pytest.mark.parametrize(
    ("name", "block"), [case for case in OF_EXPERTS if case[0] != "lory-uniform"]
)
@pytest.mark.parametrize("forced", [0, 3])
def test_one_hot(name, block, forced):
    """A router forced to expert i gives dense expert i, where models differ in experts only.

    Lory's uniform first segment asks no router.
    """
    method = METHODS[name]
    dense = differing_in_experts(method, block)
    mixture = mix(method, dense)
    # Normed inputs have no constant direction, so force through a wide embedding coordinate.
    for model in (mixture, *dense):
        _add_constant_direction(model)
    _force(mixture, forced)
    torch.testing.assert_close(logits(mixture), logits(dense[forced]))
    assert not torch.allclose(logits(mixture), logits(dense[1]))


def _force(mixture, forced):
    """Send everything to one expert, through coordinate 0."""
    for name, parameter in mixture.named_parameters():
        if name.endswith("router"):
            with torch.no_grad():
                parameter.zero_()
                parameter[:, 0] = -100.0
                parameter[forced, 0] = 100.0


def _add_constant_direction(model):
    """Make coordinate 0 of the residual stream large and positive at every token."""
    with torch.no_grad():
        model.embedding[:, 0] = 5.0
        for layer in model.layers:
            layer.attention.output[..., 0, :] = 0.0
            layer.ffn.down[..., 0, :] = 0.0


def test_mean_of_equals_is_the_identity_bit_by_bit():
    tensor = torch.randn(1000, generator=generator()) * torch.logspace(-30, 30, 1000)
    for count in (1, 2, 3, 5, 7, 10):
        assert torch.equal(mean([tensor] * count), tensor)


def test_mean_is_symmetric_bit_by_bit():
    tensors = [torch.randn(1000, generator=generator(i)) for i in range(5)]
    wanted = mean(tensors)
    assert torch.equal(mean(tensors[::-1]), wanted)
    torch.testing.assert_close(wanted, sum(tensors) / 5)


@pytest.mark.parametrize(("name", "block"), [*CASES, ("dense", "parallel"), ("dense", "serial")])
@pytest.mark.parametrize("tied", [False, True])
def test_coverage(name, block, tied):
    """Every tensor of the model has one origin, every tensor of a dense model one use."""
    method = DENSE if name == "dense" else METHODS[name]
    sources = 1 if name == "dense" else num_sources(method, 3)
    spec = shape(block, tie_embeddings=tied)
    table = origins(method, spec, [str(i) for i in range(sources)])
    target = target_shapes(method, spec, num_experts_of(method, sources))
    assert set(table) == set(target)
    check_coverage(table, target, [dense_shapes(spec)] * sources)
    assert dense_shapes(spec) == shapes(model_of(DENSE, block, tie_embeddings=tied).state_dict())


def test_coverage_finds_every_gap():
    spec = shape()
    method = METHODS["btx-top-1"]
    table = origins(method, spec, ["a", "b"])
    target, dense = target_shapes(method, spec, 2), dense_shapes(spec)
    broken = dict(table)
    del broken["final_norm"]
    broken["extra"] = Origin("mean", (Source(0, "embedding"), Source(1, "gone")), (61, 16))
    broken["lm_head"] = Origin("mean", table["lm_head"].sources, (3, 3))
    with pytest.raises(ValueError, match="final_norm has no origin") as error:
        check_coverage(broken, target, [dense, dense])
    for problem in (
        "extra is not in the target",
        r"lm_head must have shape (61, 16), its origin gives (3, 3)",
        "expert 1 has no gone",
        "final_norm of expert 0 goes nowhere",
    ):
        assert problem in str(error.value)


def test_another_shape_is_refused():
    states = [model_of(DENSE).state_dict(), model_of(DENSE, ffn_dim=32).state_dict()]
    with pytest.raises(ValueError, match=r"layers.0.ffn.gate of expert 1 must have shape"):
        upcycle(METHODS["btx-top-1"], shape(), states, generator())


def test_what_is_averaged_and_what_is_kept():
    dense = distinct("parallel")
    states = [model.state_dict() for model in dense]
    shared, own = (mix(bam(kv, top_k(1)), dense).state_dict() for kv in ("shared", "per_expert"))
    for name in states[0]:
        stacked = torch.stack([state[name] for state in states])
        part = name.split(".")[-1]
        if part in ("gate", "up", "down", "query", "output"):
            assert torch.equal(shared[name], stacked), name
            assert torch.equal(own[name], stacked), name
        elif part in ("key", "value"):
            torch.testing.assert_close(shared[name], stacked.mean(0))
            assert torch.equal(own[name], stacked), name
        else:
            torch.testing.assert_close(shared[name], stacked.mean(0))
    btx_state = mix(btx(top_k(1)), dense).state_dict()
    query = "layers.0.attention.query"
    torch.testing.assert_close(btx_state[query], torch.stack([s[query] for s in states]).mean(0))


def test_arms_share_their_ffn_routers():
    dense = distinct("parallel")
    one, other = mix(METHODS["btx-top-1"], dense), mix(METHODS["bam-shared-soft"], dense)
    noisy = mix(sparse_upcycling("all", copy_noise_std=0.1), dense)
    assert isinstance(other.method, BAMMethod)
    for i in range(2):
        assert torch.equal(one.layers[i].ffn.router, other.layers[i].ffn.router)
        assert torch.equal(one.layers[i].ffn.router, noisy.layers[i].ffn.router)


def test_upcycling_leaves_the_experts_alone():
    dense = distinct("parallel")
    before = deepcopy([model.state_dict() for model in dense])
    mixture = mix(METHODS["bam-per_expert-soft"], dense)
    with torch.no_grad():
        for parameter in mixture.parameters():
            parameter.add_(1)
    for state, model in zip(before, dense, strict=True):
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, state[name])
