"""What a phase reads of each source: tokens, epochs and repeated tokens, counted exactly.

Sequence s of a domain has the targets `s * T + 1` to `s * T + T` of its text (`batches.py`), and so
holds pieces of several documents. With c_s = how often s was read, the reads of all targets before
position p are a prefix sum over whole sequences and a part of one; a document's are the difference
of two. Nothing is read but the index of documents.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class SourceReads(NamedTuple):
    """Count what was read of one source.

    Attributes:
        tokens: read in all, end-of-text included.
        epochs: `tokens` by the source's tokens that could be drawn (those of the pool, where the
            domain has one).
        repeated_tokens: of `tokens`, those that had been read before.
    """

    tokens: int
    epochs: float
    repeated_tokens: int


def source_reads(
    index: NDArray[np.void],
    times: NDArray[np.int64],
    readable: NDArray[np.int64],
    seq_len: int,
    num_sources: int,
) -> NDArray[np.int64]:
    """Return [num_sources, 3]: tokens read, repeated among them, tokens that could be read.

    Args:
        index: the domain's documents, of dtype `DOCUMENT`.
        times: how often each of its sequences was read.
        readable: 1 for sequences that could be read, 0 for those outside a pool.
        seq_len: T.
        num_sources: sources that the index may name.
    """
    starts = np.asarray(index["start"])
    ends = starts + index["length"] + 1  # with the end-of-text
    result = np.zeros((num_sources, 3), dtype=np.int64)
    for column, counts in enumerate((times, np.maximum(times - 1, 0), readable)):
        reads = _before(ends, counts, seq_len) - _before(starts, counts, seq_len)
        np.add.at(result[:, column], index["source"], reads)
    return result


def _before(
    position: NDArray[np.int64], counts: NDArray[np.int64], seq_len: int
) -> NDArray[np.int64]:
    """Return the reads of all targets before each position; position 0 is no target."""
    whole = np.concatenate([[0], np.cumsum(counts)]) * seq_len
    # Behind the last sequence stands text that no sequence holds.
    place, inside = np.divmod(np.clip(position - 1, 0, len(counts) * seq_len), seq_len)
    before: NDArray[np.int64] = whole[place] + inside * np.append(counts, 0)[place]
    return before
