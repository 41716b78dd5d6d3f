"""How likely continuations and whole texts are: token ids in, nats out, in batches.

    pairs = [(context_ids, continuation_ids), ...]
    for found in continuation_nats(model, pairs, precision="float32"):
        found.nats, found.greedy, found.tokens, found.truncated

What is unusual:
- a context is cut on the left where context and continuation are longer than the model; where the
  continuation begins is settled before, and no token of it is ever left unscored;
- rows are padded on the right, which no causal row sees; equal rows are read once, so that the
  answers A, B, C, D of a question cost one;
- methods that route segments decide from the context alone, as in generation: once
  (`rule="prompt"`, arXiv:2405.03133 §3) or again at every segment. Rows of a batch then have
  contexts of one length. A continuation never takes part in a decision about itself, unlike in
  held-out scores, where Lory's own-mean first segment looks ahead;
- methods without a causal rule (SMEAR, Soft MoE) are refused: their routers would see the answer.

Sums are float64. Shapes: B batch, T tokens, N places that are scored, D dim, V vocab.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal, NamedTuple, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bam_lab.errors import InputError, SpecError, StageError
from bam_lab.model.context import Prompt, RoutingRule
from bam_lab.model.ensemble import Ensemble
from bam_lab.model.losses import CHUNK
from bam_lab.model.transformer import Transformer
from bam_lab.spec.laws import broken_laws
from bam_lab.spec.methods import LoryMethod, SegmentMoEMethod
from bam_lab.spec.model import END_OF_TEXT_ID

BATCH_TOKENS = 8192
"""Tokens of a forward pass, padding included, unless one row alone has more."""

Precision = Literal["bf16-mixed", "float32"]

Pair = tuple[Sequence[int], Sequence[int]]
"""The tokens of a context, at least one, and those of what is scored after it."""


class CausalLM(Protocol):
    """Say what any other causal language model must offer (`hf/causal.py` is one)."""

    @property
    def vocab_size(self) -> int:
        """Return V: what the tokens are below."""
        ...

    @property
    def max_seq_len(self) -> int:
        """Return how many tokens a row may have."""
        ...

    @property
    def device(self) -> torch.device:
        """Return where the weights are."""
        ...

    def next_token_logits(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return the logits of the token after each of `tokens`; no later token may matter."""
        ...


Model = Transformer | Ensemble | CausalLM


class NotFinite(StageError):
    """Report a likelihood that is NaN or infinite."""


class Continuation(NamedTuple):
    """Hold how likely a continuation is.

    Attributes:
        nats: its negative log-likelihood, the sum over its tokens.
        greedy: whether each of its tokens is the likeliest one.
        tokens: how many it has.
        truncated: tokens of its context that were cut off.
    """

    nats: float
    greedy: bool
    tokens: int
    truncated: int


class Rolled(NamedTuple):
    """Hold how likely a whole text is.

    Attributes:
        nats: its negative log-likelihood, the sum over its tokens.
        tokens: how many it has; each is scored once.
        windows: how many rows it was read in.
    """

    nats: float
    tokens: int
    windows: int


@torch.no_grad()
def continuation_nats(
    model: Model,
    pairs: Sequence[Pair],
    *,
    precision: Precision,
    max_len: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
    rule: RoutingRule = "prompt",
) -> list[Continuation]:
    """Return how likely each continuation is after its context, in the order of `pairs`.

    Args:
        model: any whose method has a causal inference rule.
        pairs: contexts and continuations. Begin an empty context with end-of-text.
        precision: as for held-out text.
        max_len: tokens of a row at most; None for the model's own.
        batch_tokens: tokens of a forward pass, padding included; a longer row goes alone.
        rule: how methods that route segments decide; `prompt` for all others.

    Raises:
        SpecError: the method has no causal inference rule, `rule` has no effect, or a size is
            impossible.
        InputError: a pair cannot be scored: a part of it is empty, the continuation is longer than
            `max_len`, or a token is not in the vocabulary.
        NotFinite: a likelihood is NaN or infinite.
    """
    limit = row_limit(model, max_len, batch_tokens, rule)
    _check(pairs, limit, vocab_size(model))
    rows = _rows(pairs, limit, routes_segments(model))
    device = device_of(model)
    found: dict[int, Continuation] = {}
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16-mixed"):
        for batch in _batches(rows, batch_tokens):
            wanted = [(row, part) for row in batch for part in rows[row]]
            scored = _score(model, batch, wanted, rule if batch[0].prompt else None)
            for (_, part), (losses, hits) in zip(wanted, scored, strict=True):
                nats = math.fsum(losses)
                found[part.pair] = Continuation(nats, all(hits), len(losses), part.truncated)
    bad = sorted(i for i, one in found.items() if not math.isfinite(one.nats))
    if bad:
        raise NotFinite(
            f"pairs[{bad[0]}] must have a finite likelihood, got {found[bad[0]].nats} nats "
            f"({len(bad)} of {len(pairs)} pairs). The model's logits are NaN or infinite: train it "
            "with a smaller learning rate, or evaluate it in float32."
        )
    return [found[i] for i in range(len(pairs))]


def rolling_nats(
    model: Model,
    documents: Sequence[Sequence[int]],
    *,
    precision: Precision,
    max_len: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
    prefix: int = END_OF_TEXT_ID,
) -> list[Rolled]:
    """Return how likely each text is, each of its tokens scored once (`rolling_windows`).

    `max_len` changes the value, and so is part of what it means. Methods that route segments
    decide again at every segment; a first segment that would look ahead decides from the window's
    context, which is a single token in all windows but the last.

    Raises:
        InputError: a text has no token.
        SpecError, NotFinite: as `continuation_nats` does; pairs are then windows.
    """
    rule: RoutingRule = "segment" if routes_segments(model) else "prompt"
    limit = row_limit(model, max_len, batch_tokens, rule)
    for i, tokens in enumerate(documents):
        if not len(tokens):
            raise InputError(f"documents[{i}] must hold a token, got none. Leave it out.")
    windows = [rolling_windows(tokens, limit, prefix) for tokens in documents]
    found = iter(
        continuation_nats(
            model,
            list(chain.from_iterable(windows)),
            precision=precision,
            max_len=limit,
            batch_tokens=batch_tokens,
            rule=rule,
        )
    )
    rolled = []
    for tokens, own in zip(documents, windows, strict=True):
        rolled.append(Rolled(math.fsum(next(found).nats for _ in own), len(tokens), len(own)))
    return rolled


def rolling_windows(tokens: Sequence[int], max_len: int, prefix: int) -> list[Pair]:
    """Cut a text into contexts and continuations that score each token once.

    The rule of lm-evaluation-harness: the first window begins with `prefix`, a later one with the
    token before it, and the last one is filled up with as much context as there is room for.
    """
    done = min(max_len, len(tokens))
    windows: list[Pair] = [([prefix], tokens[:done])]
    while done < len(tokens):
        end = min(done + max_len, len(tokens))
        windows.append((tokens[end - max_len - 1 : done], tokens[done:end]))
        done = end
    return windows


def bits_per_byte(nats: float, size: int) -> float:
    """Return bits a UTF-8 byte: nats / (ln 2 * bytes), whatever the tokenizer."""
    return nats / (math.log(2) * size)


def row_limit(model: Model, max_len: int | None, batch_tokens: int, rule: RoutingRule) -> int:
    """Return how many tokens a row may have.

    Raises:
        SpecError: the model cannot be scored so; `continuation_nats` says what its arguments are.
    """
    problems = []
    if isinstance(model, Transformer | Ensemble):
        for law, reason in broken_laws(model.method, "inference").items():
            if law != "causality inside the first segment":  # the context decides for it
                problems.append(
                    f"method must have a causal inference rule to score continuations, got "
                    f"{model.method.method}: {reason}, the answer's too. Leave this model out of "
                    "tasks; held-out text can score it."
                )
    if rule == "segment" and not routes_segments(model):
        problems.append(
            "rule must be prompt with a method that routes no segments, got segment. Leave it out."
        )
    longest = max_seq_len(model)
    if max_len is not None and not 1 <= max_len <= longest:
        problems.append(
            f"max_len must be from 1 to the model's max_seq_len {longest}, got {max_len}. Leave it "
            "out for the model's own."
        )
    if batch_tokens < 1:
        problems.append(f"batch_tokens must be at least 1, got {batch_tokens}. Ask for more.")
    if problems:
        raise SpecError(problems)
    return longest if max_len is None else max_len


def routes_segments(model: Model) -> bool:
    """Return whether the model's method decides for segments, and so may ask for a rule."""
    return isinstance(model, Transformer) and isinstance(
        model.method, LoryMethod | SegmentMoEMethod
    )


def max_seq_len(model: Model) -> int:
    """Return how many tokens a row may have."""
    return (
        model.spec.max_seq_len if isinstance(model, Transformer | Ensemble) else model.max_seq_len
    )


def vocab_size(model: Model) -> int:
    """Return what the model's tokens are below."""
    return model.spec.vocab_size if isinstance(model, Transformer | Ensemble) else model.vocab_size


def device_of(model: Model) -> torch.device:
    """Return where the model's weights are."""
    if isinstance(model, Transformer | Ensemble):
        return next(model.parameters()).device
    return model.device


class _Row(NamedTuple):
    """Name what is read in one row; `prompt` is the context's length where it decides, else 0."""

    prompt: int
    tokens: tuple[int, ...]


class _Part(NamedTuple):
    """Hold what is scored in a row: the tokens behind its last places."""

    pair: int
    targets: tuple[int, ...]
    truncated: int


def _check(pairs: Sequence[Pair], max_len: int, vocab: int) -> None:
    for i, (context, continuation) in enumerate(pairs):
        if not len(context):
            raise InputError(
                f"pairs[{i}].context must hold a token, got none. Begin it with end-of-text."
            )
        if not len(continuation):
            raise InputError(
                f"pairs[{i}].continuation must hold a token, got none. Mend the task's answer "
                "choices or targets: an empty text has no likelihood."
            )
        if len(continuation) > max_len:
            raise InputError(
                f"pairs[{i}].continuation must be at most max_len {max_len} tokens, got "
                f"{len(continuation)}. Score it as a whole text (rolling), or with a longer model."
            )
        lowest = min(min(context), min(continuation))
        highest = max(max(context), max(continuation))
        if lowest < 0 or highest >= vocab:
            raise InputError(
                f"pairs[{i}] must hold tokens below vocab_size {vocab}, got "
                f"{lowest if lowest < 0 else highest}. Use the model's own tokenizer."
            )


def _rows(pairs: Sequence[Pair], max_len: int, segments: bool) -> Mapping[_Row, list[_Part]]:
    """Return each distinct row with what is scored in it, longest rows first."""
    rows: dict[_Row, list[_Part]] = {}
    for i, (context, continuation) in enumerate(pairs):
        # The boundary before the cut: the last context token is always there to predict from.
        truncated = max(len(context) + len(continuation) - (max_len + 1), 0)
        kept = tuple(context[truncated:])
        row = _Row(len(kept) if segments else 0, kept + tuple(continuation[:-1]))
        rows.setdefault(row, []).append(_Part(i, tuple(continuation), truncated))
    # Longest first, so that what does not fit into memory fails at once; then by the tokens, so
    # that batches do not depend on the order of the pairs.
    ordered = sorted(rows, key=lambda row: (row.prompt, len(row.tokens), row.tokens), reverse=True)
    return {row: rows[row] for row in ordered}


def _batches(rows: Mapping[_Row, list[_Part]], batch_tokens: int) -> Iterator[list[_Row]]:
    """Yield rows that are read together: contexts of one length, the first row the longest."""
    batch: list[_Row] = []
    for row in rows:
        if batch:
            full = (len(batch) + 1) * len(batch[0].tokens) > batch_tokens
            if full or row.prompt != batch[0].prompt:
                yield batch
                batch = []
        batch.append(row)
    if batch:
        yield batch


def _score(
    model: Model,
    batch: Sequence[_Row],
    wanted: Sequence[tuple[_Row, _Part]],
    rule: RoutingRule | None,
) -> Iterator[tuple[list[float], list[bool]]]:
    """Yield the nats of each target of each wanted part, and whether it is the likeliest."""
    longest = len(batch[0].tokens)
    padded = [row.tokens + (END_OF_TEXT_ID,) * (longest - len(row.tokens)) for row in batch]
    device = device_of(model)
    number = {row: i for i, row in enumerate(batch)}
    rows: list[int] = []
    places: list[int] = []
    targets: list[int] = []
    for row, part in wanted:
        first = len(row.tokens) - len(part.targets)
        rows += [number[row]] * len(part.targets)
        places += range(first, len(row.tokens))
        targets += part.targets
    at = torch.tensor([rows, places], device=device)  # 2 N
    want = torch.tensor(targets, device=device)  # N
    prompt = None if rule is None else Prompt(batch[0].prompt, rule)
    nats, hits = [], []
    chunks = _log_probs(model, torch.tensor(padded, device=device), at, prompt)
    for log_probs, own in zip(chunks, torch.split(want, CHUNK), strict=True):
        nats.append(-log_probs.gather(1, own[:, None])[:, 0])
        hits.append(log_probs.argmax(-1) == own)
    losses, right = torch.cat(nats).double().tolist(), torch.cat(hits).tolist()
    start = 0
    for _, part in wanted:
        end = start + len(part.targets)
        yield losses[start:end], right[start:end]
        start = end


def _log_probs(
    model: Model, tokens: Int[Tensor, "B T"], at: Int[Tensor, "2 N"], prompt: Prompt | None
) -> Iterator[Float[Tensor, "n V"]]:
    """Yield the float32 log-probabilities of what follows each place, `CHUNK` places at a time."""
    rows, places = at
    match model:
        case Transformer():
            hidden = model(tokens, prompt=prompt).hidden[rows, places]  # N D
            for part in torch.split(hidden, CHUNK):
                yield model.logits(part[None])[0].float().log_softmax(-1)
        case Ensemble():
            posterior = torch.split(model.posterior(tokens)[rows, places], CHUNK)
            states = [expert(tokens).hidden[rows, places] for expert in model.experts]
            parts = zip(*(torch.split(own, CHUNK) for own in states), strict=True)
            for states_of, weights in zip(parts, posterior, strict=True):
                yield model.mix(states_of, weights)
        case _:
            for part in torch.split(model.next_token_logits(tokens)[rows, places], CHUNK):
                yield part.float().log_softmax(-1)
