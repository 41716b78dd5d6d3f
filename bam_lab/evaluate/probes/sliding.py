"""Held-out loss by sliding windows: every token after some context of its own document.

Disjoint windows (`heldout.py`) predict their first tokens from hardly anything. Here each window
begins with tokens that were scored before and are read again: the context rule is that a token is
predicted from at least `again` tokens of its document, or from end-of-text and all there are before
it. Documents are read apart from each other, and each of their tokens is scored once.

Shapes: N windows, T tokens.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from bam_lab.data.tokens.encode import documents, stream
from bam_lab.errors import InputError, SpecError
from bam_lab.evaluate.heldout import Model
from bam_lab.evaluate.likelihood import Precision, continuation_nats, routes_segments
from bam_lab.evaluate.probes.rows import Row, loss_rows
from bam_lab.evaluate.probes.segment_lens import segment_facts
from bam_lab.model.context import RoutingRule
from bam_lab.spec.model import END_OF_TEXT_ID


@torch.no_grad()
def sliding_rows(
    model: Model,
    tokens_dir: Path,
    domains: Sequence[str],
    split: str,
    seq_len: int,
    again: int,
    max_tokens: int,
    precision: Precision,
) -> list[Row]:
    """Return the loss and perplexity of each domain, and over all, each weighing the same.

    Args:
        model: any whose method has a causal inference rule.
        tokens_dir: the encoded corpus.
        domains: whose held-out text is read.
        split: `valid` or `test`.
        seq_len: tokens of a window, context included.
        again: tokens of a window that were scored before; below `seq_len`.
        max_tokens: limits each domain to its first whole documents.
        precision: of the forward pass.

    Raises:
        SpecError: no token of a window would be scored.
        InputError: a domain has no document in this split.
    """
    if not 1 <= again < seq_len:
        raise SpecError(f"context must be from 1 to {seq_len - 1} tokens, got {again}. Lower it.")
    rows: list[Row] = []
    losses = []
    rule: RoutingRule = "segment" if routes_segments(model) else "prompt"
    common = {"rule": rule, "context": seq_len, "prompt_len": again}
    common |= segment_facts(model, model)
    total_n = 0
    for domain in domains:
        pairs = list(_windows(tokens_dir, domain, split, seq_len, again, max_tokens))
        n = sum(len(scored) for _, scored in pairs)
        if not n:
            raise InputError(f"{domain} must hold out a document in {split}, got none.")
        found = continuation_nats(model, pairs, precision=precision, rule=rule)
        losses.append(math.fsum(one.nats for one in found) / n)
        total_n += n
        rows += loss_rows("sliding", losses[-1], n, domain=domain, **common)
    return [*rows, *loss_rows("sliding", float(np.mean(losses)), total_n, domain="*", **common)]


def _windows(
    tokens_dir: Path, domain: str, split: str, seq_len: int, again: int, max_tokens: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield (context, scored) of each window; a document's first one follows end-of-text."""
    text, read = stream(tokens_dir, domain, split), 0
    for document in documents(tokens_dir, domain, split):
        start, length = int(document["start"]), int(document["length"])
        if read and read + length > max_tokens:
            return
        read += length
        own = text[start : start + length].tolist()
        yield [END_OF_TEXT_ID], own[: seq_len - 1]
        for done in range(seq_len - 1, length, seq_len - again):
            yield own[done - again : done], own[done : done + seq_len - again]
