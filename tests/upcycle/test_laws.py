"""What upcycling must keep, exactly: copies, permutation, one-hot, merge of equals.

All by the inference rule; in training, capacity limits and expert choice break the copies law,
since a token that no expert takes is not fed.
"""

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F

from bam_lab.model.checkpoint import build
from bam_lab.model.context import Draw
from bam_lab.model.transformer import Transformer, initialise
from bam_lab.spec.experts import (
    copies_seed,
    expert_tensors,
    ffn_parts,
    has_bos,
    has_shared,
    num_experts_of,
    relu_router,
)
from bam_lab.spec.methods import BAMMethod, SoftMoEMethod
from bam_lab.spec.model import END_OF_TEXT_ID
from bam_lab.upcycle.execute import mean, upcycle
from bam_lab.upcycle.origins import (
    EXPERT_OPS,
    origins,
)
from tests.model.cases import (
    BLOCKS,
    DENSE,
    EXPERTS,
    METHODS,
    OF_COPIES,
    OF_EXPERTS,
    OF_MODELS,
    SOFT,
    bam,
    btx,
    context_of,
    draws_noise,
    keeps_copies,
    lory,
    model_of,
    relu,
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
    sources = dense[:1] if copies_seed(method) else dense
    spec, states = dense[0].spec, [model.state_dict() for model in sources]
    num_experts = num_experts_of(method, len(sources))
    return build(spec, method, num_experts, upcycle(method, spec, states, generator(seed)))


def logits(model):
    return model.logits(model(text()).hidden)


def trained_logits(model):
    """Return the logits of a training pass."""
    return model.logits(model(text(), Draw(100, generator())).hidden)


def distinct(block, count=EXPERTS):
    return [model_of(DENSE, block, seed=seed) for seed in range(count)]


@pytest.mark.parametrize(("name", "block"), OF_MODELS)
def test_copies(name, block):
    """N copies of the seed model give its logits, whatever the routers, where gates sum to 1.

    A mixture that puts an end-of-text token before the text is the seed model after such a token.
    """
    method, seed_model = METHODS[name], model_of(DENSE, block)
    mixture = mix(method, [seed_model] * EXPERTS)
    alone = after_end_of_text(seed_model) if has_bos(method) else logits(seed_model)
    if keeps_copies(method):
        torch.testing.assert_close(logits(mixture), alone)
    else:
        assert (logits(mixture) - alone).abs().max() > 0.01


def after_end_of_text(model):
    """Return the logits of the text behind an end-of-text token, which has no learned position."""
    longer = model.spec.model_copy(update={"max_seq_len": model.spec.max_seq_len + 1})
    state = model.state_dict()
    state |= {n: F.pad(t, (0, 0, 1, 0)) for n, t in state.items() if n == "position"}
    moved = build(longer, DENSE, 1, state)
    tokens = F.pad(text(), (1, 0), value=END_OF_TEXT_ID)
    return moved.logits(moved(tokens).hidden)[:, 1:]


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


def reordered(state, order):
    """Return the routers' columns, and the experts that hash tables name, in another order."""
    places = torch.tensor(order).argsort()
    routers = {n: t[order] for n, t in state.items() if n.endswith(("router", "bias"))}
    return routers | {n: places[t] for n, t in state.items() if n.endswith("hash")}


@pytest.mark.parametrize(("name", "block"), OF_COPIES)
def test_permutation_of_copies(name, block):
    """The same on trained copies: stacked tensors and router columns moved together."""
    model, order = model_of(METHODS[name], block), [2, 0, 3, 1]
    table = origins(model.method, model.spec, ["seed_model"])
    state = model.state_dict()
    routers = reordered(state, order)
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
    method, order = METHODS[name], [2, 0, 3, 1]
    dense = distinct(block)
    mixture = mix(method, dense)
    permuted = mix(method, [dense[i] for i in order])
    state, columns = mixture.state_dict(), columns_of(method, order)
    routers = reordered(state, columns)
    permuted.load_state_dict(permuted.state_dict() | routers)
    torch.testing.assert_close(logits(permuted), logits(mixture))
    if not draws_noise(method):  # noise is drawn a column; limits and experts' choices must follow
        torch.testing.assert_close(trained_logits(permuted), trained_logits(mixture))
    if columns != sorted(columns):
        unpermuted = mix(method, [dense[i] for i in order])
        assert not torch.allclose(logits(unpermuted), logits(mixture))


def columns_of(method, order):
    """Return the router columns of dense models in another order.

    A split model takes its parts along; blended experts hold parts of all models, in their order.
    """
    if getattr(method, "expert_layout", "whole") == "blended":
        return list(range(len(order)))
    parts = range(ffn_parts(method))
    return [i * len(parts) + part for i in order for part in parts]


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


def has_dense_experts(method):
    layout = getattr(method, "expert_layout", "whole")
    asked = getattr(method, "first_segment", "own_mean") == "own_mean"
    plain = not has_shared(method) and relu_router(method) is None  # tested below
    return layout == "whole" and asked and plain and not isinstance(method, SoftMoEMethod)


@pytest.mark.parametrize(
    ("name", "block"), [case for case in OF_EXPERTS if has_dense_experts(METHODS[case[0]])]
)
@pytest.mark.parametrize("forced", [0, 3])
def test_one_hot(name, block, forced):
    """A router forced to expert i gives dense expert i, where models differ in experts only.

    Lory's uniform first segment asks no router, an end-of-text token before the text is none of a
    dense model's, and every expert of Soft MoE has its slots; an expert that is a part of a model,
    or of all, is none of them.
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


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("router", [SOFT, top_k(1)])
def test_one_hot_beside_a_shared_expert(block, router):
    """Half a forced dense expert and half the mean of all: one SwiGLU of twice the width."""
    method = btx(router, shared_expert=True)
    dense = differing_in_experts(btx(router), block)
    mixture = mix(method, dense)
    _add_constant_direction(mixture)
    for layer in mixture.layers:
        with torch.no_grad():
            layer.ffn.shared.down[0] = 0.0
    _force(mixture, 2)
    state = dict(dense[2].state_dict())
    for name, tensor in state.items():
        if ".ffn." in name and not name.endswith("norm"):
            average = torch.stack([model.state_dict()[name] for model in dense]).mean(0)
            down = name.endswith("down")
            state[name] = torch.cat([tensor, average], int(down)) * (0.5 if down else 1)
    wide = build(shape(block, ffn_dim=48), DENSE, 1, state)
    _add_constant_direction(wide)
    torch.testing.assert_close(logits(mixture), logits(wide))


@pytest.mark.parametrize("block", BLOCKS)
def test_open_relu_gates_multiply_dense_experts(block):
    """The gates are the logits: a token's FFN is the sum of the dense experts' times these."""
    dense = distinct(block)
    mixture = mix(btx(relu()), dense)
    x, context = torch.randn(2, 50, 16, generator=generator(1)), context_of(50)
    y, _ = mixture.layers[1].ffn(x, x, context)
    logits_of_router = x @ mixture.layers[1].ffn.router.T
    assert (logits_of_router > 0).any(-1).logical_not().any()  # a token that no expert takes
    alone = [model.layers[1].ffn(x, x, context)[0] for model in dense]
    wanted = sum(logits_of_router[..., i, None].clamp(min=0) * own for i, own in enumerate(alone))
    torch.testing.assert_close(y, wanted)


def test_a_shared_expert_is_the_mean_or_the_seed_models_ffn_and_downs_are_halved():
    dense = distinct("parallel")
    mixed = mix(btx(top_k(1), shared_expert=True), dense).state_dict()
    copied = mix(sparse_upcycling("all", shared_expert=True, copy_noise_std=0.1), dense)
    copied = copied.state_dict()
    for part, scale in (("gate", 1.0), ("up", 1.0), ("down", 0.5)):
        name = f"layers.1.ffn.{part}"
        own = torch.stack([model.state_dict()[name] for model in dense])
        assert torch.equal(mixed[name], own * scale)
        torch.testing.assert_close(mixed[f"layers.1.ffn.shared.{part}"], own.mean(0) * scale)
        assert torch.equal(copied[f"layers.1.ffn.shared.{part}"], own[0] * scale)


@pytest.mark.parametrize("block", BLOCKS)
def test_copies_beside_a_shared_expert_are_scaled_by_their_gates_and_one(block):
    """Half the seed model's FFN, and half of it times the token's sum of gates."""
    seed_model = model_of(DENSE, block, num_layers=1)
    mixture = mix(btx(top_k(2), shared_expert=True), [seed_model] * EXPERTS)
    x, context = torch.randn(2, 50, 16, generator=generator(1)), context_of(50)
    y, routing = mixture.layers[0].ffn(x, x, context)
    scale = (1 + routing.gates.sum(-1, keepdim=True)) / 2
    assert (scale < 1).all()
    torch.testing.assert_close(y, scale * seed_model.layers[0].ffn(x, x, context)[0])


def _force(mixture, forced):
    """Send everything to one expert, through coordinate 0."""
    for name, parameter in mixture.named_parameters():
        if name.endswith("router"):
            with torch.no_grad():
                parameter.zero_()
                parameter[:, 0] = -100.0
                parameter[forced, 0] = 100.0  # an index, or several
    for name, table in mixture.named_buffers():
        if name.endswith("hash"):
            table.fill_(forced)


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


@pytest.mark.parametrize("name", ["sparse_upcycling-scratch-top-2", "lory-scratch-uniform"])
def test_from_scratch_is_drawn_as_a_random_start_is(name):
    """The table and `initialise` give every tensor the same distribution."""
    spec, method = shape(init_std=0.3), METHODS[name]
    state = upcycle(method, spec, [], generator())
    drawn = initialise(Transformer(spec, method, EXPERTS), generator()).state_dict()
    assert set(state) == set(drawn)
    for tensor_name, tensor in drawn.items():
        if tensor_name.endswith("norm"):
            assert torch.equal(state[tensor_name], torch.ones(16))
        else:
            std = 0.02 if tensor_name.endswith("router") else 0.3
            assert state[tensor_name].std() == pytest.approx(std, rel=0.3), tensor_name
            assert tensor.std() == pytest.approx(std, rel=0.3), tensor_name
            assert not torch.equal(state[tensor_name], tensor)


def test_frozen_experts_do_not_train_and_all_else_does():
    for name in METHODS:
        frozen = {n for n, p in model_of(METHODS[name]).named_parameters() if not p.requires_grad}
        stacked = expert_tensors(METHODS[name], 2)
        assert frozen == (stacked if "frozen" in name else set()), name
    assert "layers.0.attention.key" in expert_tensors(METHODS["bam-per_expert-frozen-top-1"], 2)
    assert "layers.0.attention.key" not in expert_tensors(METHODS["bam-shared-frozen-soft"], 2)


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
