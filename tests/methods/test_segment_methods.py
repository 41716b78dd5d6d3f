"""One line from dense modules to Lory and its rivals, copied, mixed or from scratch."""

import pytest
import torch

from bam_lab.errors import SpecError
from bam_lab.methods import SMEAR, Dense, Lory, SegmentMoE, SoftMoE, TokenMerging, module_of
from bam_lab.spec.routers import BalanceLoss
from bam_lab.train.optim import DEFAULTS
from tests.model.cases import expert_choice, shape, text, top_k

BALANCE = BalanceLoss(form="tokens", weight=0.01)
SYSTEMS = {
    "lory": (Lory, {"segment_len": 50}),
    "lory-bos": (Lory, {"segment_len": 50, "first_segment": "bos"}),
    "lory-prefix": (Lory, {"segment_len": 50, "routing": "prefix"}),
    "segment_moe": (SegmentMoE, {"segment_len": 50}),
    "segment_moe-top-2": (
        SegmentMoE,
        {"segment_len": 50, "ffn_router": top_k(2), "balance_loss": BALANCE, "z_loss": 0.001},
    ),
    "token_merging": (TokenMerging, {}),
    "smear": (SMEAR, {}),
    "soft_moe": (SoftMoE, {"slots_per_expert": 4}),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_one_line_makes_each_of_copies_of_experts_and_anew(name):
    system, settings = SYSTEMS[name]
    seed_model = Dense.from_scratch(shape())
    branches = [Dense.from_seed(seed_model) for _ in range(3)]
    for module, copies in (
        (system.from_seed(seed_model, 3, **settings), True),
        (system.from_experts(branches, **settings), True),
        (system.from_scratch(shape(), 3, **settings), False),
    ):
        gate = module.model.layers[0].ffn.gate
        assert gate.shape[0] == module.model.num_experts == 3
        assert torch.equal(gate[0], gate[1]) == copies
        assert type(module_of(module.model, DEFAULTS)) is system
        losses = set(module.training_step(text(), 0)["metrics"])
        balanced = {"balance_loss_ffn", "z_loss"} if name == "segment_moe-top-2" else set()
        assert losses >= {"loss"} | balanced
        assert balanced or not losses & {"balance_loss_ffn", "z_loss"}


def test_the_defaults_are_the_papers():
    seed_model = Dense.from_scratch(shape())
    lory = Lory.from_seed(seed_model, 2, segment_len=50).model.method
    assert (lory.first_segment, lory.routing) == ("own_mean", "causal")
    rival = SegmentMoE.from_seed(seed_model, 2, segment_len=50).model.method
    assert rival.ffn_router == expert_choice(1.0, 1)
    assert (rival.first_segment, rival.balance_loss) == ("own_mean", None)


@pytest.mark.parametrize(
    ("system", "settings", "message"),
    [
        (
            Lory,
            {"first_segment": "uniform", "routing": "prefix"},
            "method.first_segment must not be uniform with routing: prefix",
        ),
        (SegmentMoE, {"balance_loss": BALANCE}, "method.balance_loss must not be given where exp"),
        (
            SegmentMoE,
            {"ffn_router": top_k(1, capacity_factor=1.0)},
            "method.ffn_router must have no capacity_factor where whole segments",
        ),
        (SegmentMoE, {"ffn_router": top_k(1, True)}, "must be false with top_k 1"),
        (SegmentMoE, {"ffn_router": top_k(3)}, "must be at most the number of experts 2, got 3"),
    ],
)
def test_what_contradicts_itself_is_refused(system, settings, message):
    with pytest.raises(SpecError, match=message):
        system.from_seed(Dense.from_scratch(shape()), 2, segment_len=50, **settings)
