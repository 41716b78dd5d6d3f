"""How likely the true continuation of a prompt is, by prompt length, rule and segment length.

    text = texts(tokens_dir, domains, "test", max(prompt_lens) + completion_len, most=64)
    rows = completion_rows(model, text, prompt_lens, completion_len, segment_lens=(8, 16, 32), ...)

- One completion is scored after prompts of all lengths: always the same tokens, of which the prompt
  is what stands right before. So a sweep over prompt lengths shows the prompt and nothing else.
- Methods that route segments decide as in generation (arXiv:2405.03133 §3, Table 6): `prompt`, once
  for the whole completion; `segment`, again at every segment. `mismatch` is the first less the
  second, in nats a token; 0 for all other methods, and wherever the two rules agree: by a prompt of
  one segment, within a completion of one segment.
- Segments of another length than in training change no weight (`at_segment_len`).

Shapes: N rows, P prompt_len, C completion_len.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bam_lab.errors import SpecError
from bam_lab.evaluate.likelihood import BATCH_TOKENS, Model, Precision
from bam_lab.evaluate.probes.losses import by_rule
from bam_lab.evaluate.probes.rows import NATS, Row, loss_rows, row
from bam_lab.evaluate.probes.segment_lens import at_segment_len, segment_facts, segment_len_of
from bam_lab.evaluate.probes.texts import Text
from bam_lab.model.context import RoutingRule


def completion_rows(
    model: Model,
    text: Sequence[Text],
    prompt_lens: Sequence[int],
    completion_len: int,
    *,
    precision: Precision,
    segment_lens: Sequence[int] = (),
    batch_tokens: int = BATCH_TOKENS,
) -> list[Row]:
    """Return losses and mismatches of the last `completion_len` tokens of each row.

    Args:
        model: any whose method has a causal inference rule.
        text: rows of at least the longest prompt and the completion.
        prompt_lens: tokens of the prompts.
        completion_len: tokens of the completions.
        precision: as for held-out text.
        segment_lens: by which a method that routes segments is evaluated beside its own length;
            methods that route none have no such rows.
        batch_tokens: tokens of a forward pass.

    Raises:
        SpecError: as `completion_nats` does, or a segment length does not fit the model.
    """
    held = min(own.tokens.shape[1] for own in text)
    if not prompt_lens or max(prompt_lens) + completion_len > held:
        raise SpecError(
            f"prompt_lens must hold a length, and each with completion_len {completion_len} be at "
            f"most the {held} tokens of a row of text, got {list(prompt_lens)}. Cut longer rows."
        )
    rows = []
    for length in _lengths(model, segment_lens):
        used = model if length is None else at_segment_len(model, length)
        for prompt_len in prompt_lens:
            common = {
                "prompt_len": prompt_len,
                "completion_len": completion_len,
                "context": prompt_len + completion_len,
            } | segment_facts(used, model)
            cut = [
                own._replace(tokens=own.tokens[:, -prompt_len - completion_len :]) for own in text
            ]
            losses = by_rule(used, cut, prompt_len, precision=precision, batch_tokens=batch_tokens)
            means = {rule: [float(nats.mean()) for nats in found] for rule, found in losses.items()}
            rows += list(_of_means("completion", text, means, common))
    return rows


def _of_means(
    task: str,
    text: Sequence[Text],
    means: Mapping[RoutingRule, Sequence[float]],
    common: Mapping[str, Any],
) -> Iterator[Row]:
    """Yield each domain's loss under each rule and its mismatch, then those of all domains."""
    named = [({"domain": own.domain}, len(own.tokens)) for own in text]
    every = ({"domain": "*"}, sum(n for _, n in named))
    for rule, found in means.items():
        for (domain, n), value in zip((*named, every), (*found, _mean(found)), strict=True):
            yield from loss_rows(task, value, n, rule=rule, **domain, **common)
    differences = [p - s for p, s in zip(means["prompt"], means["segment"], strict=True)]
    values = (*differences, _mean(differences))
    for (domain, n), value in zip((*named, every), values, strict=True):
        yield row(task, "mismatch", value, n, unit=NATS, **domain, **common)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _lengths(model: Model, segment_lens: Sequence[int]) -> list[int | None]:
    own = segment_len_of(model)
    return [None] if own is None else [own, *(x for x in segment_lens if x != own)]
