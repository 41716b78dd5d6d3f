"""Answer in text: how likely texts are, and how they go on, in batches, over all processes.

What is unusual:
- a completion depends on its own prompt, settings and seed alone: each row has its own noise, so
  that batches and processes change no drawn token;
- stop strings are looked for in the decoded text, wherever tokens begin and end; the completion
  ends before the first of them;
- a prompt is cut on the left to leave room for all tokens that may come.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bam_lab.errors import InputError
from bam_lab.evaluate.likelihood import (
    BATCH_TOKENS,
    CausalLM,
    Continuation,
    Model,
    NotFinite,
    Pair,
    Precision,
    Rolled,
    continuation_nats,
    device_of,
    rolling_nats,
    row_limit,
)
from bam_lab.evaluate.sharing import shared
from bam_lab.model.context import RoutingRule
from bam_lab.model.ensemble import Ensemble
from bam_lab.model.generate import Decoder, Sampling, choose, left_pad
from bam_lab.model.transformer import Transformer
from bam_lab.spec.model import END_OF_TEXT_ID

MAX_NEW_TOKENS = 256
"""New tokens where a request does not say; half a row in a shorter model."""

_MAX_NEW = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_KNOWN = {"until", "do_sample", "temperature", "top_k", "top_p", *_MAX_NEW}


@dataclass(frozen=True)
class Words:
    """Hold what turns text into tokens and back.

    Attributes:
        encode: text to tokens, without any special token.
        decode: tokens to text.
        end: the token that ends a text, and opens one that has no context.
    """

    encode: Callable[[str], Sequence[int]]
    decode: Callable[[Sequence[int]], str]
    end: int = END_OF_TEXT_ID


class Tokenizer(Protocol):
    """Say what of a `tokenizers.Tokenizer` is used (`data/tokens/tokenizer.py` loads ours)."""

    def encode(self, sequence: str, *, add_special_tokens: bool) -> Any:
        """Return an encoding, which has `ids`."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text."""
        ...


def words_of(tokenizer: Tokenizer, end: int = END_OF_TEXT_ID) -> Words:
    """Return the words of a tokenizer."""

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return Words(encode, tokenizer.decode, end)


@dataclass(frozen=True)
class Settings:
    """Say how models are read; all of it is part of what a score means.

    Attributes:
        precision: as for held-out text.
        batch_tokens: tokens of a forward pass, padding included.
        max_len: tokens of a row at most; None for the model's own.
        rule: how methods that route segments decide after a context.
        rng_seed: of the noise that sampled completions are drawn with.
    """

    precision: Precision
    batch_tokens: int = BATCH_TOKENS
    max_len: int | None = None
    rule: RoutingRule = "prompt"
    rng_seed: int = 0

    def limit(self, model: Model) -> int:
        """Return the longest row of a model.

        Raises:
            SpecError: the model cannot be read so.
        """
        return row_limit(model, self.max_len, self.batch_tokens, self.rule)


class Completion(NamedTuple):
    """Hold how a prompt goes on.

    Attributes:
        text: up to the first stop string, or end-of-text.
        truncated: tokens of the prompt that were cut off.
    """

    text: str
    truncated: int


def continuations(model: Model, settings: Settings, pairs: Sequence[Pair]) -> list[Continuation]:
    """Return how likely continuations are, as `continuation_nats` does, over all processes."""
    work = partial(
        continuation_nats,
        model,
        precision=settings.precision,
        max_len=settings.max_len,
        batch_tokens=settings.batch_tokens,
        rule=settings.rule,
    )
    return shared(pairs, work)


def rolled(model: Model, words: Words, settings: Settings, texts: Sequence[str]) -> list[Rolled]:
    """Return how likely whole texts are, as `rolling_nats` does, over all processes."""
    work = partial(
        rolling_nats,
        model,
        precision=settings.precision,
        max_len=settings.max_len,
        batch_tokens=settings.batch_tokens,
        prefix=words.end,
    )
    return shared([words.encode(text) for text in texts], work)


def completions(
    model: Model,
    words: Words,
    settings: Settings,
    requests: Sequence[tuple[str, Mapping[str, Any]]],
) -> list[Completion]:
    """Return how prompts go on.

    Args:
        model: any whose method has a causal inference rule.
        words: its tokenizer.
        settings: how it is read.
        requests: prompts, each with lm-evaluation-harness's generation settings: `until` (stop
            strings), `max_gen_toks`, `do_sample`, `temperature`, `top_k`, `top_p`.

    Raises:
        InputError: a setting is unknown or impossible.
        SpecError: the model cannot generate.
        NotFinite: its logits are NaN or infinite.
    """
    limit = settings.limit(model)
    asked: Counter[str] = Counter()
    jobs = []
    for prompt, wanted in requests:
        way = _way(wanted, limit)
        key = json.dumps([settings.rng_seed, prompt, way])
        seed = hashlib.sha256(f"{key} {asked[key]}".encode()).digest()
        asked[key] += 1  # the same request again draws anew
        tokens = list(words.encode(prompt)) or [words.end]
        cut = max(len(tokens) - (limit - way.max_new), 0)
        jobs.append(_Job(tuple(tokens[cut:]), way, int.from_bytes(seed[:7]), cut))
    return shared(jobs, partial(_complete, model, words, settings))


class _Way(NamedTuple):
    """Say how to go on; `temperature` 0 takes the likeliest token."""

    until: tuple[str, ...]
    max_new: int
    temperature: float
    top_k: int | None
    top_p: float


class _Job(NamedTuple):
    tokens: tuple[int, ...]
    way: _Way
    seed: int
    truncated: int


def _way(wanted: Mapping[str, Any], limit: int) -> _Way:
    """Read generation settings; those that would have no effect are errors."""
    if unknown := sorted(wanted.keys() - _KNOWN):
        raise InputError(
            f"generation_kwargs must be of {', '.join(sorted(_KNOWN))}, got {unknown[0]}. "
            "Take it out of the task: it would have no effect."
        )
    lengths = [int(wanted[name]) for name in _MAX_NEW if wanted.get(name) is not None]
    max_new = lengths[0] if lengths else min(MAX_NEW_TOKENS, limit // 2)
    if not 1 <= max_new < limit:
        raise InputError(
            f"generation_kwargs.max_gen_toks must be from 1 to {limit - 1} (a row has {limit} "
            f"tokens, one of them the prompt's), got {max_new}. Lower it in the task."
        )
    temperature = float(wanted.get("temperature") or 0.0)
    sampled = bool(wanted.get("do_sample", temperature > 0))
    if sampled and not temperature:
        if wanted.get("temperature") is not None:
            raise InputError(
                "generation_kwargs.temperature must be above 0 with do_sample: true, got 0. Take "
                "do_sample out for greedy decoding."
            )
        temperature = 1.0  # as transformers has it
    top_k, top_p = wanted.get("top_k") or None, float(wanted.get("top_p") or 1.0)
    if not sampled and (top_k or top_p < 1):
        raise InputError(
            "generation_kwargs.do_sample must be true with top_k or top_p, got false. Leave them "
            "out for greedy decoding."
        )
    until = wanted.get("until") or ()
    stops = (until,) if isinstance(until, str) else tuple(until)
    return _Way(tuple(filter(None, stops)), max_new, temperature if sampled else 0.0, top_k, top_p)


@torch.no_grad()
def _complete(
    model: Model, words: Words, settings: Settings, jobs: Sequence[_Job]
) -> list[Completion]:
    device = device_of(model)
    done: dict[int, Completion] = {}
    with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bf16-mixed"):
        for batch in _batches(jobs, settings.batch_tokens):
            own = [jobs[i] for i in batch]
            for i, text in zip(batch, _go_on(model, words, settings.rule, own), strict=True):
                done[i] = Completion(text, jobs[i].truncated)
    return [done[i] for i in range(len(jobs))]


def _batches(jobs: Sequence[_Job], batch_tokens: int) -> Iterator[list[int]]:
    """Yield the numbers of jobs that go on the same way, the longest prompt first."""
    order = sorted(range(len(jobs)), key=lambda i: (str(jobs[i].way), -len(jobs[i].tokens), i))
    batch: list[int] = []
    for i in order:
        if batch:
            first = jobs[batch[0]]
            row = len(first.tokens) + first.way.max_new
            if jobs[i].way != first.way or (len(batch) + 1) * row > batch_tokens:
                yield batch
                batch = []
        batch.append(i)
    if batch:
        yield batch


def _go_on(model: Model, words: Words, rule: RoutingRule, jobs: Sequence[_Job]) -> list[str]:
    """Return the completions of prompts that go on the same way."""
    way, device = jobs[0].way, device_of(model)
    draws = [_sampling(job, device) for job in jobs]
    prompts, real = (t.to(device) for t in left_pad([job.tokens for job in jobs]))
    decoder: Decoder | _Uncached
    if isinstance(model, Transformer | Ensemble):
        decoder = Decoder(model, prompts, real, way.max_new, rule)
    else:
        decoder = _Uncached(model, [list(job.tokens) for job in jobs])
    made: list[list[int]] = [[] for _ in jobs]
    going = set(range(len(jobs)))
    logits = decoder.start()
    for step in range(way.max_new):
        if not (logits < torch.inf).all():  # NaN too; -inf is a token that never comes
            raise NotFinite(
                "logits must be finite, got NaN or infinity in generation. Train the model with a "
                "smaller learning rate, or evaluate it in float32."
            )
        rows = [choose(logits[i : i + 1], draw) for i, draw in enumerate(draws)]
        drawn = torch.cat(rows)
        for i, token in enumerate(drawn.tolist()):
            if i in going and token != words.end:
                made[i].append(token)
                if not _has_stop(words, made[i], way.until):
                    continue
            going.discard(i)
        if not going or step + 1 == way.max_new:
            break
        logits = decoder.step(drawn)
    return [_before(words.decode(tokens), way.until) for tokens in made]


def _sampling(job: _Job, device: torch.device) -> Sampling | None:
    if not job.way.temperature:
        return None
    noise = torch.Generator(device).manual_seed(job.seed)
    return Sampling(noise, job.way.temperature, job.way.top_k, job.way.top_p)


def _has_stop(words: Words, tokens: Sequence[int], until: Sequence[str]) -> bool:
    if not until:
        return False
    text = words.decode(tokens)
    return any(stop in text for stop in until)


def _before(text: str, until: Sequence[str]) -> str:
    """Return the text before the first stop string."""
    return text[: min((text.find(stop) for stop in until if stop in text), default=len(text))]


class _Uncached:
    """Decode with any causal language model, all text anew for every token."""

    def __init__(self, model: CausalLM, rows: list[list[int]]):
        self.model, self.rows = model, rows

    def start(self) -> Float[Tensor, "B V"]:
        lengths = [len(row) for row in self.rows]
        padded = [row + [END_OF_TEXT_ID] * (max(lengths) - len(row)) for row in self.rows]
        tokens = torch.tensor(padded, device=self.model.device)
        logits = self.model.next_token_logits(tokens)
        return logits[range(len(lengths)), [length - 1 for length in lengths]].float()

    def step(self, tokens: Int[Tensor, " B"]) -> Float[Tensor, "B V"]:
        for row, token in zip(self.rows, tokens.tolist(), strict=True):
            row.append(token)
        return self.start()
