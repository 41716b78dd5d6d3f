"""Hand batches to Lightning, from any step on."""

from collections.abc import Iterator

import lightning
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from bam_lab.data.tokens.batches import Batches


class Steps(IterableDataset[Tensor]):
    """Yield batches `start_step` to `num_steps`, as [B, T+1] of int64."""

    def __init__(self, batches: Batches, start_step: int, num_steps: int):
        """Hold what to yield; nothing is read before iteration."""
        self.batches = batches
        self.start_step = start_step
        self.num_steps = num_steps

    def __iter__(self) -> Iterator[Tensor]:
        """Yield the batches in order."""
        for step in range(self.start_step, self.num_steps):
            yield torch.from_numpy(self.batches.batch(step))


class BatchesDataModule(lightning.LightningDataModule):
    """Serve `num_steps` batches in all; a resumed run starts at `start_step`, exactly.

    A batch takes well under a millisecond, so no loader processes are used.
    """

    def __init__(self, batches: Batches, num_steps: int, start_step: int = 0):
        """Hold the batches; `start_step` is the number of steps already done."""
        super().__init__()
        self.steps = Steps(batches, start_step, num_steps)

    def train_dataloader(self) -> DataLoader[Tensor]:
        """Return the loader of the remaining batches, one item a batch."""
        return DataLoader(self.steps, batch_size=None, num_workers=0)
