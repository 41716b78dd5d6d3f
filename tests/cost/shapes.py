"""The papers' shapes and methods, shared by the tests of `cost/`."""

from bam_lab.spec.methods import (
    BAMMethod,
    BTXMethod,
    DenseMethod,
    LoryMethod,
    SparseUpcyclingMethod,
)
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.routers import (
    ExpertChoiceRouter,
    HashRouter,
    ReLURouter,
    SampleRouter,
    SoftRouter,
    TopKRouter,
)

SOFT = SoftRouter(score="softmax", select="all")
TOP_1 = TopKRouter(score="softmax", select="top_k", top_k=1, renormalize=False)
TOP_2 = TOP_1.model_copy(update={"top_k": 2})
TOP_3 = TOP_1.model_copy(update={"top_k": 3})
SWITCH = TOP_1.model_copy(update={"capacity_factor": 1.5})
SAMPLE = SampleRouter(
    score="softmax", select="sample", estimator="soft_value", soft_first_layer=True
)
CHOICE = ExpertChoiceRouter(
    score="softmax", select="expert_choice", capacity_factor=1.5, inference_top_k=1
)
RELU = ReLURouter(score="relu", select="all", active_experts=1)
HASH = HashRouter(select="hash", kind="random")
DENSE = DenseMethod(method="dense")
BTX = BTXMethod(method="btx", ffn_router=TOP_1)
KV_EXPERTS = BAMMethod(method="bam", kv="per_expert", ffn_router=TOP_1, attention_router=SOFT)
KV_SHARING = KV_EXPERTS.model_copy(update={"kv": "shared"})
SPARSE = SparseUpcyclingMethod(
    method="sparse_upcycling", num_experts=4, layers="every_other", ffn_router=TOP_2
)
LORY = LoryMethod(method="lory", segment_len=64, first_segment="own_mean")


def shape(**changes: object) -> ModelSpec:
    """Return the paper's small model (arXiv:2408.08274 Table 8), changed where asked."""
    small = {
        "schema": 1,
        "vocab_size": 256000,
        "dim": 1024,
        "num_layers": 6,
        "num_heads": 8,
        "num_kv_heads": 8,
        "head_dim": 128,
        "ffn_dim": 2048,
        "max_seq_len": 256,
        "block": "parallel",
        "tie_embeddings": False,
    }
    return ModelSpec.model_validate(small | changes)


SMALL = shape()
LARGE = shape(
    dim=2304, num_layers=18, num_heads=18, num_kv_heads=6, ffn_dim=9216, tie_embeddings=True
)
