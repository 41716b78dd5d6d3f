"""Batches of packed training text, each a pure function of (tokens, mix, rng_seed, batch number).

- Documents stand end to end, each followed by end-of-text; a sequence is `seq_len + 1` tokens, and
  the next one starts at its last, so that every token is once a target in an epoch.
- Which domain a sequence comes from is decided without chance, by the mix alone (`draws.py`).
- Draw j of a domain is sequence `permutation(epoch)[j % n]` of it, with epoch = j // n.

There is no iterator state: resuming at step k is asking for batch k.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bam_lab.data.tokens.draws import drawn, draws
from bam_lab.data.tokens.encode import stream
from bam_lab.errors import InputError


class Batches:
    """Hold memory-mapped training text and cut batches from it."""

    def __init__(
        self,
        tokens_dir: Path,
        mix: Mapping[str, float],
        batch_sequences: int,
        seq_len: int,
        rng_seed: int,
    ):
        """Open the domains of `mix` with a weight above 0; the weights sum to 1.

        Raises:
            InputError: a domain has not one sequence of training text.
        """
        assert math.isclose(sum(mix.values()), 1.0, abs_tol=1e-6), mix
        self.batch_sequences = batch_sequences
        self.seq_len = seq_len
        self.rng_seed = rng_seed
        self.weights = {domain: weight for domain, weight in sorted(mix.items()) if weight > 0}
        self._streams = {domain: stream(tokens_dir, domain, "train") for domain in self.weights}
        self.sequences = {
            domain: (len(tokens) - 1) // seq_len for domain, tokens in self._streams.items()
        }
        for domain, count in self.sequences.items():
            if count < 1:
                raise InputError(
                    f"{domain} must hold at least {seq_len + 1} training tokens, got "
                    f"{len(self._streams[domain])}. Give it more text or shorten max_seq_len."
                )
        self._permutations: dict[tuple[str, int], NDArray[np.int64]] = {}

    def batch(self, index: int) -> NDArray[np.int64]:
        """Return batch `index`: [batch_sequences, seq_len + 1], inputs and targets overlapping."""
        rows = np.empty((self.batch_sequences, self.seq_len + 1), dtype=np.int64)
        for row, (domain, draw) in zip(rows, self.draws(index), strict=True):
            epoch, place = divmod(draw, self.sequences[domain])
            start = int(self._permutation(domain, epoch)[place]) * self.seq_len
            row[:] = self._streams[domain][start : start + self.seq_len + 1]
        return rows

    def draws(self, index: int) -> list[tuple[str, int]]:
        """Return (domain, draw number) of each sequence of a batch."""
        first = index * self.batch_sequences
        return draws(self.weights, first, first + self.batch_sequences)

    def drawn(self, num_batches: int) -> dict[str, int]:
        """Return the sequences that the first `num_batches` batches take from each domain."""
        return drawn(self.weights, num_batches * self.batch_sequences)

    def epochs(self, num_batches: int) -> dict[str, float]:
        """Return how often the first `num_batches` batches pass over each domain's text."""
        return {
            domain: count / self.sequences[domain]
            for domain, count in self.drawn(num_batches).items()
        }

    def _permutation(self, domain: str, epoch: int) -> NDArray[np.int64]:
        """Return the order of a domain's sequences in an epoch; remembered for the last epoch."""
        known = self._permutations.get((domain, epoch))
        if known is None:
            name = int.from_bytes(domain.encode(), "little")
            generator = np.random.Generator(np.random.PCG64([self.rng_seed, epoch, name]))
            known = generator.permutation(self.sequences[domain])
            for old in [key for key in self._permutations if key[0] == domain]:
                if old[1] < epoch - 1:
                    del self._permutations[old]
            self._permutations[domain, epoch] = known
        return known
