"""Loss curves: 20 steps of each variant on the fixture text, float32, one thread.

`make golden` writes them anew; the commit says why. Between machines float32 sums differ in their
last digits, and 20 steps carry that along: `TOLERANCE` is nats.
"""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from bam_lab.methods import Dense, module_of
from bam_lab.methods.mixing import draw, mix
from bam_lab.record import metrics
from bam_lab.spec.experts import num_sources
from bam_lab.train.fit import fit
from bam_lab.train.optim import Training
from tests.conftest import FIXTURES
from tests.model.cases import EXPERTS, METHODS, shape

FOLDER = Path(__file__).parent / "losses"
TOLERANCE = 1e-4
"""Two runs on one machine give equal files; another instruction set (AVX2) moved them by 1e-6."""
VARIANTS = {
    "dense-parallel": ("dense", "parallel"),
    "dense-serial": ("dense", "serial"),
    "dense-learned": ("dense", "learned"),
    "dense-gelu": ("dense", "gelu"),
    "bam-shared-soft-layer-norm": ("bam-shared-soft", "layer-norm"),
    "lory-uniform-learned": ("lory-uniform", "learned"),
    "btx-top-1": ("btx-top-1", "parallel"),
    "btx-top-2-renormalized-serial": ("btx-top-2-renormalized", "serial"),
    "bam-shared-soft": ("bam-shared-soft", "parallel"),
    "bam-per_expert-soft": ("bam-per_expert-soft", "parallel"),
    "bam-shared-top-2": ("bam-shared-top-2", "parallel"),
    "bam-per_expert-top-1-serial": ("bam-per_expert-top-1", "serial"),
    "bam-per_expert-top-2-balanced": ("bam-per_expert-top-2-balanced", "parallel"),
    "sparse_upcycling-every_other-top-2": ("sparse_upcycling-every_other-top-2", "parallel"),
    "lory-own_mean": ("lory-own_mean", "parallel"),
    "lory-uniform-serial": ("lory-uniform", "serial"),
    "lory-bos": ("lory-bos", "parallel"),
    "lory-prefix-own_mean": ("lory-prefix-own_mean", "parallel"),
    "segment_moe-own_mean-top-1": ("segment_moe-own_mean-top-1", "parallel"),
    "segment_moe-own_mean-expert_choice": ("segment_moe-own_mean-expert_choice", "serial"),
    "token_merging": ("token_merging", "parallel"),
    "smear": ("smear", "parallel"),
    "soft_moe": ("soft_moe", "parallel"),
    "btx-split-top-2-renormalized": ("btx-split-top-2-renormalized", "parallel"),
    "btx-blended-top-2-renormalized": ("btx-blended-top-2-renormalized", "parallel"),
    "btx-frozen-top-2": ("btx-frozen-top-2", "parallel"),
    "bam-shared-frozen-soft": ("bam-shared-frozen-soft", "parallel"),
    "sparse_upcycling-scratch-top-2": ("sparse_upcycling-scratch-top-2", "parallel"),
    "lory-scratch-uniform": ("lory-scratch-uniform", "parallel"),
    "sparse_upcycling-drop": ("sparse_upcycling-drop-top-2-renormalized", "parallel"),
    "sparse_upcycling-fine": ("sparse_upcycling-fine-top-2-renormalized", "parallel"),
    "sparse_upcycling-partly": ("sparse_upcycling-partly-top-2", "serial"),
    "btx-top-1-capacity": ("btx-top-1-capacity", "parallel"),
    "btx-top-2-bias": ("btx-top-2-bias", "parallel"),
    "btx-sample-soft-first": ("btx-sample-soft-first", "parallel"),
    "btx-straight-through-serial": ("btx-straight-through", "serial"),
    "btx-expert-choice": ("btx-expert-choice", "parallel"),
    "btx-expert-choice-sequence-serial": ("btx-expert-choice-sequence", "serial"),
    "btx-relu": ("btx-relu", "parallel"),
    "btx-shared-top-2-renormalized": ("btx-shared-top-2-renormalized", "parallel"),
    "sparse_upcycling-shared-top-2": ("sparse_upcycling-shared-top-2", "serial"),
    "btx-hash-balanced": ("btx-hash-balanced", "parallel"),
    "btx-hash-clustered-serial": ("btx-hash-clustered", "serial"),
}


class ByteBatches:
    """Cut batches from the fixture corpus, a byte a token."""

    batch_sequences, seq_len = 4, 64

    def __init__(self):
        files = sorted((FIXTURES / "corpus").glob("*.jsonl"))
        text = b"".join(path.read_bytes() for path in files)
        self.text = np.frombuffer(text, dtype=np.uint8).astype(np.int64)

    def batch(self, index):
        starts = np.random.Generator(np.random.PCG64(index)).integers(
            0, len(self.text) - self.seq_len - 1, (self.batch_sequences, 1)
        )
        return self.text[starts + np.arange(self.seq_len + 1)]


def curve(method, block, workdir):
    training = Training(steps=20, peak_lr=1e-2, warmup_steps=5)
    spec = shape(block, vocab_size=256, init_std=0.05)
    sources = 1 if method == "dense" else num_sources(METHODS[method], EXPERTS)
    dense = [Dense.from_scratch(spec, rng_seed=i, training=training) for i in range(sources)]
    if method == "dense":
        model = dense[0].model
    else:
        # Unrelated models, so that experts differ from the first step on.
        mixed = mix(METHODS[method], dense, 0, allow_unrelated=True) if dense else None
        model = mixed or draw(METHODS[method], spec, 0)
    module = module_of(model, training)
    fit(
        module,
        ByteBatches(),
        workdir=workdir,
        precision="float32",
        device="cpu",
        threads=1,
        checkpoint_every=100,
        log_every=1,
    )
    return [row["loss"] for row in metrics.read(workdir / metrics.NAME)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses(variant, tmp_path):
    torch.set_num_threads(1)
    losses = curve(*VARIANTS[variant], tmp_path)
    path = FOLDER / f"{variant}.txt"
    if os.environ.get("BAM_LAB_GOLDEN") == "write":
        path.write_text("".join(f"{loss:.6f}\n" for loss in losses))
    wanted = [float(line) for line in path.read_text().split()]
    assert losses == pytest.approx(wanted, abs=TOLERANCE)
    assert losses[-1] < losses[0] - 0.5
