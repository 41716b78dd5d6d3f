"""Held-out loss of the first segment of every window apart from that of all later ones.

Lory routes the first segment by its own mean, by one token, or by nothing, and all others by the
segment before (arXiv:2405.03133 §3, App. A). In any model the first tokens of a window also have
the least context, so it is arms beside each other that show what routing does there: the same
`segment_len` cuts the windows of all of them. The two parts add up to the whole.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from bam_lab.data.tokens.heldout import UNSCORED, Windows, windows
from bam_lab.errors import SpecError
from bam_lab.evaluate.heldout import Model, window_nats
from bam_lab.evaluate.likelihood import Precision
from bam_lab.evaluate.probes.rows import Row, loss_rows, row
from bam_lab.evaluate.probes.segment_lens import segment_len_of


def first_segment_rows(
    model: Model,
    tokens_dir: Path,
    domains: Sequence[str],
    split: str,
    seq_len: int,
    max_tokens: int,
    precision: Precision,
    segment_len: int,
) -> list[Row]:
    """Return the losses of both parts, with their tokens; arguments as of `heldout.score`.

    Raises:
        SpecError: windows of `seq_len` tokens have no later segment.
    """
    rows: list[Row] = []
    for domain in domains:
        held = windows(tokens_dir, domain, split, seq_len, max_tokens)
        nats = window_nats(model, held, precision)
        rows += rows_of(held, nats, domain, segment_len, segment_len_of(model))
    return rows


def rows_of(
    held: Windows,
    nats: Float[ndarray, "N T"],
    domain: str,
    segment_len: int,
    trained_segment_len: int | None,
) -> list[Row]:
    """Return the same of losses that are known: those of `heldout.window_nats`.

    A target counts to the segment of the token that predicts it.
    """
    length = nats.shape[1]
    if not 1 <= segment_len < length:
        raise SpecError(
            f"segment_len must be from 1 to {length - 1}, to leave a later segment in windows of "
            f"{length} tokens, got {segment_len}. Take a shorter one."
        )
    rows: list[Row] = []
    for part, places in (("first", slice(segment_len)), ("later", slice(segment_len, None))):
        scored = held.document[:, places] != UNSCORED
        total, n = nats[:, places].sum(where=scored, dtype=np.float64), int(scored.sum())
        common = {
            "domain": domain,
            "context": length,
            "segment_len": segment_len,
            "trained_segment_len": trained_segment_len,
            "part": part,
        }
        if n:
            rows += loss_rows("first-segment", float(total) / n, n, **common)
        rows.append(row("first-segment", "tokens", n, n, unit="tokens", **common))
    return rows
