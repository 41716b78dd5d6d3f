"""Completions far longer than a segment: the loss by distance from the prompt.

    text = texts(tokens_dir, domains, "test", prompt_len + completion_len, most=64)
    rows = distance_rows(model, text, prompt_len, bin_len=16, precision="float32")
    rows += distance_rows(model, switched(text, prompt_len), prompt_len, bin_len=16, ...)

Under `prompt` one FFN, decided by the prompt, serves a completion of any length, while `segment`
follows the text (arXiv:2405.03133 §3); what that costs grows with the distance, and more where the
completion is of another domain than the prompt (`texts.switched`). A row's distance is that of its
bin's first token from the end of the prompt; the row without a distance is all of the completion,
and the bins' losses, weighed by their tokens, add up to it.

Shapes: N rows, C completion_len.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from bam_lab.errors import SpecError
from bam_lab.evaluate.likelihood import BATCH_TOKENS, Model, Precision, device_of
from bam_lab.evaluate.probes.losses import by_rule, check
from bam_lab.evaluate.probes.rows import NATS, Row, loss_rows, row
from bam_lab.evaluate.probes.segment_lens import segment_facts
from bam_lab.evaluate.probes.texts import Text
from bam_lab.model.context import RoutingRule
from bam_lab.model.ensemble import Ensemble
from bam_lab.model.generate import generate
from bam_lab.model.transformer import Transformer


def distance_rows(
    model: Model,
    text: Sequence[Text],
    prompt_len: int,
    bin_len: int,
    *,
    precision: Precision,
    batch_tokens: int = BATCH_TOKENS,
) -> list[Row]:
    """Return losses and mismatches by distance, of everything behind `prompt_len` tokens.

    Args:
        model: any whose method has a causal inference rule.
        text: rows, of one length each.
        prompt_len: tokens of the prompts.
        bin_len: tokens of a bin; the last one may have fewer. A segment's length shows most.
        precision: as for held-out text.
        batch_tokens: tokens of a forward pass.

    Raises:
        SpecError: as `completion_nats` does, or a bin holds no token.
    """
    check_bins(bin_len)
    found = by_rule(model, text, prompt_len, precision=precision, batch_tokens=batch_tokens)
    rows: list[Row] = []
    for place, own in enumerate(text):
        length = own.tokens.shape[1]
        common = {
            "domain": own.domain,
            "prompt_domain": own.prompt_domain,
            "prompt_len": prompt_len,
            "completion_len": length - prompt_len,
            "context": length,
        } | segment_facts(model, model)
        nats = {rule: each[place] for rule, each in found.items()}
        rows += _of_bins(nats, None, common)
        for start in range(0, length - prompt_len, bin_len):
            part = {rule: each[:, start : start + bin_len] for rule, each in nats.items()}
            at = {"distance": start, "bin_len": part["prompt"].shape[1]}
            rows += _of_bins(part, start, common | at)
    return rows


def check_bins(bin_len: int) -> None:
    """Refuse bins without a token.

    Raises:
        SpecError: that.
    """
    if bin_len < 1:
        raise SpecError(f"bin_len must be at least 1, got {bin_len}. Take a segment's length.")


def _of_bins(
    nats: Mapping[RoutingRule, Float[ndarray, "N C"]], start: int | None, common: Mapping[str, Any]
) -> Iterator[Row]:
    n = len(nats["prompt"])
    means = {rule: math.fsum(own.ravel()) / own.size for rule, own in nats.items()}
    for rule, value in means.items():
        yield from loss_rows("long", value, n, rule=rule, **common)
    difference = means["prompt"] - means["segment"]
    yield row("long", "mismatch", difference, n, unit=NATS, **common)


def own_completions(
    model: Transformer | Ensemble,
    text: Sequence[Text],
    prompt_len: int,
    *,
    precision: Precision,
    rule: RoutingRule = "prompt",
    batch_tokens: int = BATCH_TOKENS,
) -> list[Text]:
    """Return the same prompts, each followed by the model's own greedy completion.

    It is as long as the true one, whether or not the model ends its text before. Only the weights
    of experts are of interest then (`drift.py`): its own text is likely by how it was made.

    Raises:
        SpecError: as `generate` does.
    """
    result = []
    for own in text:
        length = own.tokens.shape[1]
        check(model, length, prompt_len, batch_tokens, rule)
        device, parts = device_of(model), []
        prompts = torch.from_numpy(own.tokens[:, :prompt_len])
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16-mixed"):
            for rows in torch.split(prompts, max(batch_tokens // length, 1)):
                done = generate(
                    model, rows.to(device), None, length - prompt_len, rule=rule, end=None
                )
                parts.append(torch.cat((rows, done.tokens.cpu()), 1).numpy())
        result.append(own._replace(tokens=np.concatenate(parts)))
    return result
