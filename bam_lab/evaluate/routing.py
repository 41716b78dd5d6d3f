"""Routing on held-out text, measured the same way for every method: rows of kind `routing`.

A row is kind, layer, router (ffn, attention), expert, domain, metric, value, n: n decisions were
counted (`routing_counts.py` says what a decision is). `*` is all: experts, domains (each weighing
the same), or layers (their mean). All is by the rule of inference but where a name says training.

- `load`: an expert's share of what is sent, or of the gates where all experts serve; with the
  domains beside each other, the heat map. `likeliest`: its share of the decisions that give it more
  than any other. `above`: the share of decisions that give it more than 2/E (not of two experts).
- `entropy`: of the router's softmax, mean, in nats. `load_entropy`: of the loads. `load_max`,
  `load_min`: of one expert over all domains.
- `none`, `several`: the share of decisions that no expert serves, or more than one; `experts`: how
  many do. `dropped`: the share of choices that a limit dropped; by the rule of inference none.
- `dead`: the share of experts with less than 1% of an even load over all domains.
- `used`: the share of experts that some decision gives more than 2/E (arXiv:2405.03133 appendix G).
  It grows with the text: the paper's is over 40,000 segments; `n` says how many are ours.
- `mutual_information`, `mutual_information_likeliest`: of domain and expert in nats, by load, and
  by the likeliest expert, which does not shrink where gates are soft.
- `own_domain`: the share of a domain's load that its own experts take; `own_domain_even`: what they
  would take of an even load.
- `agreement`: of the (decision, expert) pairs that the training rule or the inference rule chooses,
  the share that both do; only where the two differ (`routing_training.py`). `training_none`,
  `training_several`, `training_experts`, `training_dropped`: what the training rule makes of a
  batch.

Shapes: B batch, T tokens.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bam_lab.data.tokens.heldout import UNSCORED, Windows, windows
from bam_lab.evaluate.routing_counts import (
    Counts,
    Place,
    count,
    decisions_that_count,
    routings_of,
)
from bam_lab.evaluate.routing_measures import Row, over_layers, rows_of
from bam_lab.evaluate.routing_tokens import TokenSums, add_tokens, examples, no_tokens, shown
from bam_lab.evaluate.routing_training import routers_that_differ, training_rows
from bam_lab.model.transformer import Output, Transformer
from bam_lab.spec.parts import domain_of

Precision = Literal["bf16-mixed", "float32"]
_ROWS = 16  # windows a forward pass


class Measured(NamedTuple):
    """Hold the rows of kind `routing`, and those of token examples (`routing_tokens.py`)."""

    rows: list[Row]
    tokens: list[Row]


@torch.no_grad()
def measure(
    model: Transformer,
    tokens_dir: Path,
    domains: Sequence[str],
    split: str,
    seq_len: int,
    max_tokens: int,
    precision: Precision,
    homes: Sequence[str | None],
    batch_sequences: int,
) -> Measured:
    """Measure every router of a model on held-out text; a dense model has no rows.

    Args:
        model: in evaluation mode.
        tokens_dir: the encoded corpus.
        domains: whose held-out text is read.
        split: `valid` or `test`.
        seq_len: tokens of a window.
        max_tokens: limits each domain to its first whole documents.
        precision: of the forward pass.
        homes: each expert's own domain (`homes_of`).
        batch_sequences: sequences of a training batch, for what the training rule makes of one.
    """
    counts: dict[Place, dict[str, Counts]] = defaultdict(dict)
    sums: dict[Place, TokenSums] = {}
    held = {d: windows(tokens_dir, d, split, seq_len, max_tokens) for d in domains}
    for domain, text in held.items():
        for tokens, scored in _batches(text, next(model.parameters()).device):
            output = _run(model, tokens, precision)
            sampled = shown(output)
            for place, routing in routings_of(output):
                own = counts[place]
                counted = decisions_that_count(model.method, routing, scored)
                own[domain] = count(routing, counted).plus(own.get(domain))
                if place in sampled:
                    if place not in sums:
                        sums[place] = no_tokens(model.spec.vocab_size, routing.logits.shape[-1])
                    add_tokens(sums[place], model.method, routing, tokens, scored)
    rows = [row for place, own in counts.items() for row in rows_of(place, own, homes)]
    rows += _of_a_training_batch(model, held, precision, batch_sequences)
    return Measured(rows + over_layers(rows), examples(sums))


def homes_of(experts: Sequence[str], general: str) -> list[str | None]:
    """Return the domain that is behind each expert, by what `spec/experts.py` calls it.

    The seed model's is the general domain. None where that is no one domain's, or where all experts
    are of one model, so that none has a domain of its own.
    """
    names = [name.partition("[")[0] for name in experts]
    if len(set(names)) == 1:
        return [None] * len(names)
    others = {"blend": None, "scratch": None, "seed_model": general}
    return [others[name] if name in others else domain_of(name) for name in names]


def _of_a_training_batch(
    model: Transformer, held: Mapping[str, Windows], precision: Precision, batch_sequences: int
) -> list[Row]:
    """Put a batch together of all domains' first windows, and see how training would route it."""
    if not routers_that_differ(model):
        return []
    each = max(batch_sequences // len(held), 1)
    device = next(model.parameters()).device
    tokens = np.concatenate([text.tokens[:each] for text in held.values()])
    document = np.concatenate([text.document[:each] for text in held.values()])
    owners = [domain for domain, text in held.items() for _ in text.tokens[:each]]
    output = _run(model, torch.from_numpy(tokens)[:, :-1].to(device), precision)
    scored = torch.from_numpy(document != UNSCORED).to(device)
    return list(training_rows(model, output, scored, owners))


def _run(model: Transformer, tokens: Tensor, precision: Precision) -> Output:
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=precision == "bf16-mixed"):
        output: Output = model(tokens)
    return output


def _batches(text: Windows, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield tokens [B, T], and at which of them [B, T] the next one is scored."""
    arrays = (torch.from_numpy(text.tokens), torch.from_numpy(text.document != UNSCORED))
    for rows, scored in zip(*(torch.split(array, _ROWS) for array in arrays), strict=True):
        yield rows[:, :-1].to(device), scored.to(device)
