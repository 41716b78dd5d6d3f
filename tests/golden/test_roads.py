"""Loss curves of roads with more than one training: a low-rank branch, a Lory turned sparse."""

import os
from copy import deepcopy

import pytest
import torch

from bam_lab.hf.lora import attach, merge
from bam_lab.methods import BTX, Dense, Lory, module_of
from bam_lab.record import metrics
from bam_lab.spec.branches import LoRASpec
from bam_lab.train.fit import fit
from bam_lab.train.optim import Training
from tests.golden.test_losses import FOLDER, TOLERANCE, ByteBatches
from tests.model.cases import EXPERTS, shape, top_k

TRAINING = Training(steps=20, peak_lr=5e-2, warmup_steps=5)
HALF = Training(steps=10, peak_lr=1e-2, warmup_steps=2)


def seed_model(training):
    return Dense.from_scratch(shape(vocab_size=256, init_std=0.05), training=training)


def trained(module, workdir):
    """Train and return the losses."""
    fixed = {"precision": "float32", "device": "cpu", "threads": 1}
    fit(module, ByteBatches(), workdir=workdir, checkpoint_every=100, log_every=1, **fixed)
    return [row["loss"] for row in metrics.read(workdir / metrics.NAME)]


def low_rank(workdir):
    """Train adapters of a model that has been trained a little, and go on with all of it."""
    model = seed_model(HALF)
    losses = trained(model, workdir / "seed")
    before = deepcopy(model.model.state_dict())
    lora = LoRASpec(rank=4, alpha=8.0, targets=("ffn", "attention"))
    adapted = module_of(attach(model.model, lora, 0), TRAINING)
    losses += trained(adapted, workdir / "branch")
    after = merge(adapted.model).state_dict()
    moved = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert moved == {name for name in after if ".ffn." in name or ".attention." in name}
    return losses


def lory_to_sparse(workdir):
    lory = Lory.from_seed(seed_model(HALF), EXPERTS, segment_len=10, training=HALF)
    losses = trained(lory, workdir / "lory")
    sparse = BTX.from_lory(lory, ffn_router=top_k(2, renormalize=True), training=HALF)
    return losses + trained(sparse, workdir / "sparse")


ROADS = {"dense-lora": low_rank, "lory-to-sparse": lory_to_sparse}


@pytest.mark.parametrize("road", ROADS)
def test_losses(road, tmp_path):
    torch.set_num_threads(1)
    for part in ("seed", "branch", "lory", "sparse"):
        (tmp_path / part).mkdir()
    losses = ROADS[road](tmp_path)
    path = FOLDER / f"{road}.txt"
    if os.environ.get("BAM_LAB_GOLDEN") == "write":
        path.write_text("".join(f"{loss:.6f}\n" for loss in losses))
    wanted = [float(line) for line in path.read_text().split()]
    assert losses == pytest.approx(wanted, abs=TOLERANCE)
    assert losses[-1] < losses[9] < losses[0] - 0.1
