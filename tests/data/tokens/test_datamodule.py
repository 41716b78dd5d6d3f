"""What Lightning gets."""

import torch

from bam_lab.data.tokens.batches import Batches
from bam_lab.data.tokens.datamodule import BatchesDataModule


def test_resumes_exactly(tokens_dir):
    batches = Batches(tokens_dir, {"law": 0.5, "math": 0.5}, 4, 32, 5)
    whole = list(BatchesDataModule(batches, num_steps=9).train_dataloader())
    rest = list(BatchesDataModule(batches, num_steps=9, start_step=4).train_dataloader())
    assert len(whole) == 9
    assert len(rest) == 5
    assert whole[0].dtype == torch.int64
    assert whole[0].shape == (4, 33)
    assert all(torch.equal(a, b) for a, b in zip(whole[4:], rest, strict=True))
