"""Held-out text: nats per token, perplexity and bits per byte, by domain, source and document.

Every token of every document is scored once (`data/tokens/heldout.py`); end-of-text is not, since
it has no bytes. Bits per byte = nats / (ln 2 * bytes) and so does not depend on the tokenizer;
perplexity = exp(nats / tokens). Sums are float64. A Lory model is scored by the rule it is trained
by, routed again at every segment; with `first_segment: own_mean` the first one sees its own later
tokens.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bam_lab.data.tokens.heldout import Windows, windows
from bam_lab.model.ensemble import Ensemble
from bam_lab.model.losses import token_nats
from bam_lab.model.transformer import Transformer

Row = dict[str, Any]
Model = Transformer | Ensemble
_ROWS = 16  # windows a forward pass


def score(
    model: Model,
    tokens_dir: Path,
    domains: Sequence[str],
    split: str,
    seq_len: int,
    max_tokens: int,
    precision: Literal["bf16-mixed", "float32"],
) -> tuple[list[Row], list[Row]]:
    """Return the rows of `scores.csv` and of `documents.parquet`, as in the store.

    `max_tokens` limits each domain to its first whole documents.
    """
    scores: list[Row] = []
    documents: list[Row] = []
    for domain in domains:
        held = windows(tokens_dir, domain, split, seq_len, max_tokens)
        nats = held.per_document(window_nats(model, held, precision))
        common = {"domain": domain, "split": split}
        documents += [
            {**common, "source": source, "document": i, "nats": x, "tokens": n, "bytes": b}
            for i, (source, x, n, b) in enumerate(
                zip(
                    held.source,
                    nats.tolist(),
                    held.length.tolist(),
                    held.bytes.tolist(),
                    strict=True,
                )
            )
        ]
        for source, chosen in _sources(held):
            totals = (float(array[chosen].sum()) for array in (nats, held.length, held.bytes))
            for metric, unit, value in _metrics(*totals):
                row = {**common, "kind": "heldout", "source": source, "metric": metric}
                scores.append(row | {"context": seq_len, "unit": unit, "value": value})
    return scores, documents


@torch.no_grad()
def window_nats(
    model: Model, held: Windows, precision: Literal["bf16-mixed", "float32"]
) -> NDArray[np.float32]:
    """Return the nats of each window's targets [N, T]."""
    device = next(model.parameters()).device
    parts = []
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16-mixed"):
        for rows in torch.split(torch.from_numpy(held.tokens), _ROWS):
            tokens = rows.to(device)
            parts.append(_token_nats(model, tokens[:, :-1], tokens[:, 1:]).cpu())
    nats: NDArray[np.float32] = torch.cat(parts).numpy()
    return nats


def _token_nats(model: Model, tokens: Tensor, targets: Tensor) -> Tensor:
    """Return the nats of each target [B, T] after the tokens up to its place."""
    match model:
        case Transformer():
            return token_nats(model(tokens).hidden, model.lm_head_weight, targets)
        case Ensemble():
            return model.token_nats(tokens, targets)
        case _:
            assert_never(model)


def domain_nats(
    model: Model,
    tokens_dir: Path,
    domains: Sequence[str],
    split: str,
    seq_len: int,
    max_tokens: int,
    precision: Literal["bf16-mixed", "float32"],
) -> dict[str, float]:
    """Return domain -> nats per token: what is validated during training."""
    result = {}
    for domain in domains:
        held = windows(tokens_dir, domain, split, seq_len, max_tokens)
        nats = held.per_document(window_nats(model, held, precision))
        result[domain] = float(nats.sum() / held.length.sum())
    return result


def _sources(held: Windows) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield `*` with all documents, then each source with its own."""
    names = np.array(held.source)
    yield "*", np.ones(len(names), dtype=bool)
    for name in sorted(set(held.source)):
        yield name, names == name


def _metrics(nats: float, tokens: float, size: float) -> Iterator[tuple[str, str, float]]:
    yield "nll", "nats/token", nats / tokens
    yield "perplexity", "", math.exp(nats / tokens)
    yield "bits_per_byte", "bits/byte", nats / (math.log(2) * size)
    yield "tokens", "tokens", tokens
    yield "bytes", "bytes", size
