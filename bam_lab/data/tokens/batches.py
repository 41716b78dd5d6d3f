"""Batches of packed training text, each a pure function of (tokens, mix, rng_seed, batch number).

- Documents stand end to end, each followed by end-of-text; a sequence is `seq_len + 1` tokens, and
  the next one starts at its last, so that every token is once a target in an epoch.
- Which domain a sequence comes from is decided without chance, by the mix alone (`draws.py`).
- Draw j of a domain is sequence `permutation(epoch)[j % n]` of it, with epoch = j // n; of a pool,
  n is its size, and sequences are those of the pool, drawn once for all epochs.
- An order of documents (`data/order/`) changes which documents share a sequence; in which order the
  sequences are drawn stays random, by the same numbers.

There is no iterator state: resuming at step k is asking for batch k.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from bam_lab.data.tokens.draws import drawn, draws
from bam_lab.data.tokens.encode import documents, read_tokens_manifest, stream
from bam_lab.data.tokens.sources import SourceReads, source_reads
from bam_lab.errors import InputError

_NO_POOLS: Mapping[str, int] = MappingProxyType({})
_POOL = 1 << 32
"""Stands where the permutations of the sequences have their epoch."""


class Batches:
    """Hold memory-mapped training text and cut batches from it.

    Attributes:
        sequences: how many different ones each domain has to read: its pool's, or all.
    """

    def __init__(
        self,
        tokens_dir: Path,
        mix: Mapping[str, float],
        batch_sequences: int,
        seq_len: int,
        rng_seed: int,
        *,
        pools: Mapping[str, int] = _NO_POOLS,
        order_dir: Path | None = None,
    ):
        """Open the domains of `mix` with a weight above 0; the weights sum to 1.

        Args:
            tokens_dir: encoded text, as `encode.py` writes it.
            mix: weights over domains.
            batch_sequences: sequences of a batch.
            seq_len: tokens of a sequence that are read, and that are predicted.
            rng_seed: of the order of sequences, and of the pools.
            pools: domain -> sequences of it that are read at all; what is not named has no limit.
            order_dir: the same training text with its documents in another order.

        Raises:
            InputError: a domain has not one sequence of training text, or fewer than its pool.
        """
        assert math.isclose(sum(mix.values()), 1.0, abs_tol=1e-6), mix
        assert all(mix.get(domain, 0) > 0 and size > 0 for domain, size in pools.items()), pools
        self.batch_sequences = batch_sequences
        self.seq_len = seq_len
        self.rng_seed = rng_seed
        self.weights = {domain: weight for domain, weight in sorted(mix.items()) if weight > 0}
        self._tokens_dir, self._train_dir = tokens_dir, order_dir or tokens_dir
        self._streams = {
            domain: stream(self._train_dir, domain, "train") for domain in self.weights
        }
        self._whole = {
            domain: (len(tokens) - 1) // seq_len for domain, tokens in self._streams.items()
        }
        for domain, count in self._whole.items():
            if count < 1:
                raise InputError(
                    f"{domain} must hold at least {seq_len + 1} training tokens, got "
                    f"{len(self._streams[domain])}. Give it more text or shorten max_seq_len."
                )
            if count < pools.get(domain, 0):
                raise InputError(
                    f"{domain} must hold at least {pools[domain] * seq_len + 1:,} training tokens "
                    f"to repeat no more of them than asked, got {len(self._streams[domain]):,}. "
                    "Raise general_repeats, take fewer tokens or give it more text."
                )
        self._pools = {
            domain: self._shuffled(domain, _POOL, self._whole[domain])[:size]
            for domain, size in pools.items()
        }
        self.sequences = self._whole | dict(pools)
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

    def shares(self, num_batches: int) -> dict[str, float]:
        """Return the share of each domain in the tokens of the first `num_batches` batches."""
        total = num_batches * self.batch_sequences
        return {domain: count / total for domain, count in self.drawn(num_batches).items()}

    def epochs(self, num_batches: int) -> dict[str, float]:
        """Return how often the first `num_batches` batches pass over each domain's text.

        Of a domain with a pool: over the pool's text.
        """
        return {
            domain: count / self.sequences[domain]
            for domain, count in self.drawn(num_batches).items()
        }

    def sources(self, num_batches: int) -> dict[str, SourceReads]:
        """Return what the first `num_batches` batches read of each source, exactly."""
        names = read_tokens_manifest(self._tokens_dir).sources
        counted = np.zeros((len(names), 3), dtype=np.int64)
        for domain, count in self.drawn(num_batches).items():
            index = documents(self._train_dir, domain, "train")
            times, readable = self._times_read(domain, count)
            counted += source_reads(index, times, readable, self.seq_len, len(names))
        return {
            name: SourceReads(tokens, tokens / available, repeated)
            for name, (tokens, repeated, available) in zip(names, counted.tolist(), strict=True)
            if available
        }

    def _times_read(self, domain: str, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how often `count` draws read each of a domain's sequences; 1 where they may."""
        epochs, rest = divmod(count, self.sequences[domain])
        times = np.zeros(self._whole[domain], dtype=np.int64)
        times[self._pools.get(domain, slice(None))] = 1
        readable = times.copy()
        times *= epochs
        if rest:
            times[self._permutation(domain, epochs)[:rest]] += 1
        return times, readable

    def _permutation(self, domain: str, epoch: int) -> NDArray[np.int64]:
        """Return the order of a domain's sequences in an epoch; remembered for the last epoch."""
        known = self._permutations.get((domain, epoch))
        if known is None:
            known = self._shuffled(domain, epoch, self.sequences[domain])
            if domain in self._pools:
                known = self._pools[domain][known]
            for old in [key for key in self._permutations if key[0] == domain]:
                if old[1] < epoch - 1:
                    del self._permutations[old]
            self._permutations[domain, epoch] = known
        return known

    def _shuffled(self, domain: str, epoch: int, count: int) -> NDArray[np.int64]:
        name = int.from_bytes(domain.encode(), "little")
        generator = np.random.Generator(np.random.PCG64([self.rng_seed, epoch, name]))
        return generator.permutation(count)
