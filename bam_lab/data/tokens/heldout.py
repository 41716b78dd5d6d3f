"""Cut held-out text into windows in which every token is scored exactly once.

Documents stand packed as in training. Window w reads stream[w*T : w*T+T] and scores the T tokens
that follow one place later; the stream opens with end-of-text, so that the first token of the first
document has something before it. End-of-text itself and the padding of the last window are never
scored: they carry no bytes.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bam_lab.data.tokens.encode import documents, read_tokens_manifest, stream
from bam_lab.errors import InputError

UNSCORED = -1
_INDEXED = 4096


@dataclass(frozen=True)
class Windows:
    """Hold one domain's held-out text, ready to score.

    Attributes:
        tokens: [N, T+1]; inputs are `tokens[:, :-1]`, targets `tokens[:, 1:]`.
        document: [N, T]; the number of the document that each target belongs to, or `UNSCORED`.
        length: tokens of each document; the number of times it stands in `document`.
        bytes: UTF-8 bytes of each document.
        source: the name of each document's source.
    """

    tokens: NDArray[np.int64]
    document: NDArray[np.int64]
    length: NDArray[np.int64]
    bytes: NDArray[np.int64]
    source: list[str]

    def per_document(self, nats: NDArray[np.floating]) -> NDArray[np.float64]:
        """Sum per-target losses [N, T] into one number a document, in float64."""
        scored = self.document != UNSCORED
        sums = np.zeros(len(self.length), dtype=np.float64)
        np.add.at(sums, self.document[scored], nats[scored])
        return sums


def windows(tokens_dir: Path, domain: str, split: str, seq_len: int, max_tokens: int) -> Windows:
    """Return the windows over the first whole documents of at most `max_tokens` in all.

    The first document is taken even if it is longer. Documents stand in hash order, so that the
    first ones are a sample of all sources.

    Raises:
        InputError: the domain has no document in this split.
    """
    manifest = read_tokens_manifest(tokens_dir)
    index = documents(tokens_dir, domain, split)
    if len(index) == 0:
        raise InputError(
            f"{domain} must hold out documents in {split}, got none. "
            "Raise its hold_out shares or give it more text."
        )
    lengths = _first_lengths(index, max_tokens)
    count = len(lengths)
    text = stream(tokens_dir, domain, split)[: int(lengths.sum()) + count].astype(np.int64)
    owner = np.repeat(np.arange(count), lengths + 1)
    owner[np.cumsum(lengths + 1) - 1] = UNSCORED
    padded = -len(text) % seq_len
    text = np.pad(text, (1, padded), constant_values=manifest.end_of_text)
    owner = np.pad(owner, (0, padded), constant_values=UNSCORED)
    starts = np.arange(0, len(text) - 1, seq_len)[:, None]
    return Windows(
        tokens=text[starts + np.arange(seq_len + 1)],
        document=owner.reshape(-1, seq_len),
        length=lengths,
        bytes=index["bytes"][:count].astype(np.int64),
        source=[manifest.sources[i] for i in index["source"][:count]],
    )


def _first_lengths(index: NDArray[np.void], max_tokens: int) -> NDArray[np.int64]:
    """Return the lengths of the documents that fit; no more of the index is read than they need."""
    read = np.zeros(0, dtype=np.int64)
    for start in range(0, len(index), _INDEXED):
        read = np.concatenate([read, index["length"][start : start + _INDEXED]])
        if read.sum() > max_tokens:
            break
    count = int(np.searchsorted(np.cumsum(read), max_tokens, side="right"))
    return read[: max(count, 1)]
