"""Hand batches to Lightning, from any step on, whole or in the parts that ranks take.

A batch stands in `accumulate * ranks` parts of equal size, its rows in order: part `i * ranks + r`
is what rank r reads i-th. Put back together the parts are the batch, however it was spread.
"""

from collections.abc import Iterator
from typing import NamedTuple

import lightning
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from bam_lab.data.tokens.batches import Batches
from bam_lab.errors import InputError


class Spread(NamedTuple):
    """Say how one batch is spread over processes and over passes of each.

    Attributes:
        ranks: processes that train together.
        rank: this one's number.
        accumulate: passes whose gradients make one optimizer step.
    """

    ranks: int = 1
    rank: int = 0
    accumulate: int = 1

    @property
    def parts(self) -> int:
        """Return the parts of a batch."""
        return self.ranks * self.accumulate

    def part(self, index: int) -> int:
        """Return which part of its batch this rank's pass `index` reads, all passes counted."""
        return index % self.accumulate * self.ranks + self.rank

    def check(self, batch_sequences: int) -> None:
        """Refuse a batch that does not divide.

        Raises:
            InputError: it has not the same number of sequences in every part.
        """
        if min(self.ranks, self.accumulate) < 1 or batch_sequences % self.parts:
            raise InputError(
                "batch_sequences must be a multiple of ranks x accumulate, got "
                f"{batch_sequences} for {self.ranks} x {self.accumulate}. Take other numbers of "
                "ranks or passes: another batch would be another training."
            )


class Steps(IterableDataset[Tensor]):
    """Yield batches `start_step` to `num_steps`, as [B, T+1] of int64, or this rank's parts."""

    def __init__(self, batches: Batches, start_step: int, num_steps: int, spread: Spread):
        """Hold what to yield; nothing is read before iteration."""
        self.batches = batches
        self.start_step = start_step
        self.num_steps = num_steps
        self.spread = spread

    def __iter__(self) -> Iterator[Tensor]:
        """Yield the batches, or parts, in order."""
        for step in range(self.start_step, self.num_steps):
            batch = torch.from_numpy(self.batches.batch(step))
            parts = batch.chunk(self.spread.parts)
            for index in range(self.spread.accumulate):
                yield parts[self.spread.part(index)]


class BatchesDataModule(lightning.LightningDataModule):
    """Serve `num_steps` batches in all; a resumed run starts at `start_step`, exactly.

    A batch takes well under a millisecond, so no loader processes are used, and every rank cuts
    whole batches.
    """

    def __init__(
        self, batches: Batches, num_steps: int, start_step: int = 0, spread: Spread | None = None
    ):
        """Hold the batches; `start_step` is the number of steps already done.

        Raises:
            InputError: a batch does not divide into the parts of `spread`.
        """
        super().__init__()
        spread = spread or Spread()
        spread.check(batches.batch_sequences)
        self.steps = Steps(batches, start_step, num_steps, spread)

    def train_dataloader(self) -> DataLoader[Tensor]:
        """Return the loader of the remaining batches, one item a batch or part."""
        return DataLoader(self.steps, batch_size=None, num_workers=0)
