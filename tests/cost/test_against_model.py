"""What `cost/` states without torch, against the model itself."""

import pytest
import torch

from bam_lab import resources
from bam_lab.cost import flops, memory
from bam_lab.cost.params import count, frozen_params
from bam_lab.evaluate import heldout
from bam_lab.model import causal_attention, gathered_attention, losses
from bam_lab.model.transformer import Transformer
from bam_lab.spec.methods import (
    SegmentMoEMethod,
    SMEARMethod,
    SoftMoEMethod,
    TokenMergingMethod,
)
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.reader import read
from tests.cost.shapes import (
    BTX,
    CHOICE,
    DENSE,
    HASH,
    KV_EXPERTS,
    KV_SHARING,
    LORY,
    RELU,
    SAMPLE,
    SPARSE,
    TOP_2,
    shape,
)

SHAPES = {
    path.stem: read(path, ModelSpec)
    for path in sorted((resources.folder("configs") / "model").glob("*.yaml"))
} | {
    "serial": shape(block="serial", num_kv_heads=2),
    "tied": shape(tie_embeddings=True),
    "learned": shape(positions="learned"),
    "layer-norm": shape(norm="layer"),
}
METHODS = {
    "dense": (DENSE, 1),
    "btx": (BTX, 4),
    "btx-6": (BTX, 6),
    "kv-sharing": (KV_SHARING, 4),
    "kv-experts": (KV_EXPERTS, 4),
    "sparse-upcycling": (SPARSE, 4),
    "lory": (LORY, 4),
    "lory-bos": (LORY.model_copy(update={"first_segment": "bos"}), 32),
    "segment_moe": (
        SegmentMoEMethod(
            method="segment_moe", segment_len=64, first_segment="bos", ffn_router=TOP_2
        ),
        4,
    ),
    "token_merging": (TokenMergingMethod(method="token_merging"), 4),
    "smear": (SMEARMethod(method="smear"), 4),
    "soft_moe": (SoftMoEMethod(method="soft_moe", slots_per_expert=7), 4),
    "btx-split": (BTX.model_copy(update={"expert_layout": "split", "chunks": 2}), 8),
    "btx-blended": (BTX.model_copy(update={"expert_layout": "blended"}), 4),
    "btx-frozen": (BTX.model_copy(update={"frozen_experts": True}), 4),
    "kv-experts-frozen": (KV_EXPERTS.model_copy(update={"frozen_experts": True}), 4),
    "kv-sharing-frozen": (KV_SHARING.model_copy(update={"frozen_experts": True}), 4),
    "sparse-scratch": (SPARSE.model_copy(update={"start": "scratch"}), 4),
    "sparse-fine": (SPARSE.model_copy(update={"granularity": 2, "layers": "all"}), 8),
    "btx-hash": (BTX.model_copy(update={"ffn_router": HASH}), 4),
    "btx-sample": (BTX.model_copy(update={"ffn_router": SAMPLE}), 4),
    "btx-expert-choice": (BTX.model_copy(update={"ffn_router": CHOICE}), 4),
    "btx-relu": (BTX.model_copy(update={"ffn_router": RELU}), 4),
    "btx-shared": (BTX.model_copy(update={"shared_expert": True}), 4),
    "sparse-shared-fine": (
        SPARSE.model_copy(update={"shared_expert": True, "granularity": 2}),
        8,
    ),
    "kv-sharing-hash": (KV_SHARING.model_copy(update={"ffn_router": HASH}), 4),
}


@pytest.mark.parametrize(("method", "experts"), METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("model", SHAPES.values(), ids=SHAPES)
def test_what_is_frozen_is_the_models_number_of_parameters_without_gradient(model, method, experts):
    with torch.device("meta"):
        built = Transformer(model, method, experts)
    wanted = sum(p.numel() for p in built.parameters() if not p.requires_grad)
    assert frozen_params(model, method, experts) == wanted


@pytest.mark.parametrize(("method", "experts"), METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("model", SHAPES.values(), ids=SHAPES)
def test_total_is_the_models_number_of_parameters(model, method, experts):
    with torch.device("meta"):
        made = Transformer(model, method, experts)
    assert count(model, method, experts).total == sum(p.numel() for p in made.parameters())


def test_ungated_ffn_has_two_projections():
    model = shape(activation="gelu")
    with torch.device("meta"):
        made = Transformer(model, DENSE, 1)
    assert count(model, DENSE, 1).total == sum(p.numel() for p in made.parameters())


def test_constants_are_the_models():
    assert causal_attention.BLOCK == flops.BLOCK
    assert causal_attention.BLOCKED_UP_TO == flops.BLOCKED_UP_TO
    for name in ("TILE", "FILL", "KEYS"):
        assert getattr(gathered_attention, name) == getattr(flops, name)
    assert gathered_attention.KEPT_UP_TO == flops.BLOCKED_UP_TO
    assert losses.CHUNK == memory.LOGITS_CHUNK_TOKENS
    assert heldout._ROWS == memory.EVALUATION_SEQUENCES
