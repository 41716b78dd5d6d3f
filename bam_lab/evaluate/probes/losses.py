"""The loss of every token behind a prompt, under either inference rule: rows of one length.

Unlike `likelihood.py`, which takes pairs of any lengths and sums, this keeps the tokens apart.

Shapes: B batch, N rows, L tokens, C tokens behind the prompt.
"""

from collections.abc import Sequence
from typing import get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from bam_lab.errors import SpecError
from bam_lab.evaluate.likelihood import (
    BATCH_TOKENS,
    Model,
    NotFinite,
    Precision,
    device_of,
    max_seq_len,
    routes_segments,
    row_limit,
)
from bam_lab.evaluate.probes.texts import Text
from bam_lab.model.context import Prompt, RoutingRule
from bam_lab.model.ensemble import Ensemble
from bam_lab.model.losses import token_nats
from bam_lab.model.transformer import Transformer

RULES: tuple[RoutingRule, ...] = get_args(RoutingRule)


@torch.no_grad()
def completion_nats(
    model: Model,
    tokens: Int[ndarray, "N L"],
    prompt_len: int,
    *,
    precision: Precision,
    rule: RoutingRule = "prompt",
    batch_tokens: int = BATCH_TOKENS,
) -> Float[ndarray, "N C"]:
    """Return the nats of each token behind the first `prompt_len` of every row.

    Args:
        model: any whose method has a causal inference rule.
        tokens: rows of one length; the last token is predicted and not read.
        prompt_len: at least 1, and below L.
        precision: as for held-out text.
        rule: how methods that route segments decide; `prompt` for all others.
        batch_tokens: tokens of a forward pass, unless one row alone has more.

    Raises:
        SpecError: the method has no causal inference rule, `rule` has no effect, or rows are too
            long for the model.
        NotFinite: a loss is NaN or infinite.
    """
    check(model, tokens.shape[1], prompt_len, batch_tokens, rule)
    device = device_of(model)
    prompt = Prompt(prompt_len, rule) if routes_segments(model) else None
    parts = []
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16-mixed"):
        for rows in batches(tokens, batch_tokens):
            nats = _nats(model, rows.to(device), prompt_len, prompt)
            parts.append(nats.double().cpu())
    found: Float[ndarray, "N C"] = torch.cat(parts).numpy()
    if bad := int((~np.isfinite(found)).any(1).sum()):
        raise NotFinite(
            f"the loss of a completion must be finite, got NaN or infinity in {bad} of "
            f"{len(found)} rows. Train the model with a smaller learning rate, or evaluate it in "
            "float32."
        )
    return found


def batches(tokens: Int[ndarray, "N L"], batch_tokens: int) -> tuple[Int[Tensor, "B L"], ...]:
    """Return rows in batches of about `batch_tokens`."""
    return torch.split(torch.from_numpy(tokens), max(batch_tokens // tokens.shape[1], 1))


def check(model: Model, length: int, prompt_len: int, batch_tokens: int, rule: RoutingRule) -> None:
    """Refuse rows of `length` tokens that cannot be scored.

    Raises:
        SpecError: as `completion_nats` says.
    """
    row_limit(model, None, batch_tokens, rule)
    problems = []
    if not 1 <= prompt_len < length:
        problems.append(
            f"prompt_len must be at least 1 and leave a completion of rows of {length} tokens, got "
            f"{prompt_len}. Mend one of the two."
        )
    if length > max_seq_len(model) + 1:
        problems.append(
            "prompt_len and completion_len must be at most max_seq_len + 1 together, "
            f"{max_seq_len(model) + 1} for this model, got {length}. Ask for shorter ones."
        )
    if problems:
        raise SpecError(problems)


def _nats(model: Model, rows: Tensor, prompt_len: int, prompt: Prompt | None) -> Tensor:
    read, targets = rows[:, :-1], rows[:, prompt_len:]
    match model:
        case Transformer():
            hidden = model(read, prompt=prompt).hidden[:, prompt_len - 1 :]
            return token_nats(hidden, model.lm_head_weight, targets)
        case Ensemble():
            return model.token_nats(read, rows[:, 1:])[:, prompt_len - 1 :]
        case _:
            log_probs = model.next_token_logits(read)[:, prompt_len - 1 :].float().log_softmax(-1)
            return -log_probs.gather(-1, targets[..., None])[..., 0]


def by_rule(
    model: Model, text: Sequence[Text], prompt_len: int, *, precision: Precision, batch_tokens: int
) -> dict[RoutingRule, list[Float[ndarray, "N C"]]]:
    """Return the nats of each text's completions under both rules; one pass where they are one."""
    found: dict[RoutingRule, list[Float[ndarray, "N C"]]] = {}
    for rule in RULES:
        if rule == "prompt" or routes_segments(model):
            found[rule] = [
                completion_nats(
                    model,
                    own.tokens,
                    prompt_len,
                    precision=precision,
                    rule=rule,
                    batch_tokens=batch_tokens,
                )
                for own in text
            ]
    return {rule: found.get(rule, found["prompt"]) for rule in RULES}
