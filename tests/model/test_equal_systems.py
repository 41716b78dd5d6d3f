"""Systems that are one model at certain settings: logits and gradients, through different code.

Each pair holds the same weights. What makes them equal is said beside it.
"""

import pytest
import torch

from bam_lab.model.checkpoint import build
from bam_lab.model.context import Draw
from bam_lab.model.losses import next_token_loss
from bam_lab.spec.methods import (
    MethodSpec,
    SegmentMoEMethod,
    SMEARMethod,
    SoftMoEMethod,
    TokenMergingMethod,
)
from tests.model.cases import (
    BLOCKS,
    EXPERTS,
    METHODS,
    SOFT,
    bam,
    btx,
    expert_choice,
    lory,
    model_of,
    sparse_upcycling,
    text,
    top_k,
)

ALL = top_k(EXPERTS, renormalize=True)
SMEAR = SMEARMethod(method="smear")
ROOM = EXPERTS - 0.01  # rounded up, all tokens of `text`; EXPERTS itself is refused: no limit
PAIRS: dict[str, tuple[MethodSpec, MethodSpec]] = {
    # Every expert is chosen, by any order of softmax and top-k.
    "top-all is soft": (btx(ALL), btx(SOFT)),
    "attention top-all is soft, shared": (bam("shared", ALL), bam("shared", SOFT)),
    "attention top-all is soft, per expert": (bam("per_expert", ALL), bam("per_expert", SOFT)),
    # Only what the weights start from tells them apart.
    "sparse upcycling is btx": (sparse_upcycling("all", top_k(2)), btx(top_k(2))),
    # Room for every choice of every token.
    "no limit that bites": (btx(top_k(2, capacity_factor=ROOM)), btx(top_k(2))),
    # Each expert has room for every token and takes them all.
    "experts that take all": (btx(expert_choice(ROOM, EXPERTS)), btx(SOFT)),
    "experts that take all of a row": (
        btx(expert_choice(ROOM, EXPERTS, group="sequence")),
        btx(SOFT),
    ),
    "segments top-all, by either order": (
        SegmentMoEMethod(
            method="segment_moe", segment_len=10, first_segment="own_mean", ffn_router=ALL
        ),
        SegmentMoEMethod(
            method="segment_moe",
            segment_len=10,
            first_segment="own_mean",
            ffn_router=top_k(EXPERTS),
        ),
    ),
}


def twins(one: MethodSpec, other: MethodSpec, block: str = "parallel"):
    """Return two models of the same weights."""
    model = model_of(one, block)
    return model, build(model.spec, other, EXPERTS, model.state_dict())


def logits_and_gradients(model, tokens, training):
    draw = Draw(100, torch.Generator().manual_seed(0)) if training else None
    hidden = model(tokens[:, :-1], draw).hidden
    next_token_loss(hidden, model.lm_head_weight, tokens[:, 1:]).backward()
    return model.logits(hidden), {name: p.grad for name, p in model.named_parameters()}


def assert_equal(one, other, tokens, training=False):
    (logits, gradients), (wanted, theirs) = (
        logits_and_gradients(model, tokens, training) for model in (one, other)
    )
    torch.testing.assert_close(logits, wanted)
    assert gradients.keys() == theirs.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, theirs[name], msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("pair", PAIRS)
def test_one_model_under_two_names(pair, block, training):
    assert_equal(*twins(*PAIRS[pair], block), text(), training)


@pytest.mark.parametrize("block", BLOCKS)
def test_smear_is_lory_of_one_segment(block):
    """A text within Lory's first segment is routed by its own mean, as SMEAR routes a sequence.

    SMEAR's router learns from it and Lory's does not: gradients agree behind the last router.
    """
    smear, one = twins(SMEAR, lory("own_mean").model_copy(update={"segment_len": 75}), block)
    (logits, gradients), (wanted, theirs) = (
        logits_and_gradients(model, text(length=60), False) for model in (smear, one)
    )
    torch.testing.assert_close(logits, wanted)
    assert theirs["layers.1.ffn.router"] is None or not theirs["layers.1.ffn.router"].any()
    assert gradients["layers.1.ffn.router"].any()
    last = [n for n in gradients if n.startswith(("layers.1.ffn.", "lm_head", "final_norm"))]
    for name in (n for n in last if not n.endswith("router")):
        torch.testing.assert_close(gradients[name], theirs[name], msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("block", BLOCKS)
def test_lory_of_one_token_segments_is_token_merging_by_the_token_before(block):
    """On a text of equal tokens every place holds the same, so the one before decides alike."""
    merging, one = twins(
        TokenMergingMethod(method="token_merging"),
        lory("own_mean").model_copy(update={"segment_len": 1}),
        block,
    )
    tokens = torch.full((2, 41), 7)
    for a, b in zip(*(model.logits(model(tokens).hidden) for model in (merging, one)), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("slots", [1, 3])
def test_soft_moe_of_one_token_is_soft_routing_of_its_slots(slots):
    """With one token every slot holds it, so experts are weighed by their slots' softmax."""
    method = SoftMoEMethod(method="soft_moe", slots_per_expert=slots)
    model = model_of(method)
    state = model.state_dict()
    with torch.no_grad():
        for name in [n for n in state if n.endswith("router")]:
            state[name] = state[name][:, :1].expand(-1, slots, -1)  # alike: the sum is the softmax
            model.get_parameter(name).copy_(state[name])
    single = {n: t[:, 0] if n.endswith("router") else t for n, t in state.items()}
    soft = build(model.spec, METHODS["btx-soft"], EXPERTS, single)
    tokens = text(rows=5, length=1)
    torch.testing.assert_close(model.logits(model(tokens).hidden), soft.logits(soft(tokens).hidden))
