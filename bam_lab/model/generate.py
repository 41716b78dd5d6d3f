"""Generate text: prompts are read once, then every token costs one step through a cache.

    from bam_lab.model.generate import Sampling, generate, left_pad

    prompts, real = left_pad([[5, 6, 7], [8]])
    done = generate(model, prompts, real, max_new_tokens=20)  # greedy
    noise = torch.Generator().manual_seed(0)
    done = generate(model, prompts, real, 20, sampling=Sampling(noise, temperature=0.8, top_p=0.95))
    done.tokens[0, : done.lengths[0]]

What is unusual:
- prompts come padded on the left, as others have them, and are moved to the left edge: positions
  and segments then count from a row's first token, prompts run as ordinary causal rows, and what
  stands behind a shorter one is never seen. A row comes out as it would alone;
- methods that route segments decide once, from the whole prompt (`rule="prompt"`; Lory's own,
  arXiv:2405.03133 §3), or again at every segment (`rule="segment"`);
- Lory's own-mean first segment looks ahead inside the prompt, which is known; a prompt shorter than
  that segment decides by the tokens it has, and the decision stays;
- of Branch-Train-Merge, every model reads every token, and next-token distributions are mixed;
- logits do not depend on what is cached: a step equals the whole forward pass under the same rule
  to rounding (tests/model/test_generate.py).

Shapes: B batch, T tokens of the longest prompt, N new tokens, V vocab.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bam_lab.errors import SpecError
from bam_lab.model.context import Cache, LayerCache, RoutingRule
from bam_lab.model.ensemble import Ensemble
from bam_lab.model.transformer import Transformer
from bam_lab.spec.experts import has_bos
from bam_lab.spec.laws import no_generation
from bam_lab.spec.methods import LoryMethod, MethodSpec, SegmentMoEMethod
from bam_lab.spec.model import END_OF_TEXT_ID, ModelSpec

_COLDEST = 1e-6  # logits divided by less may leave float32


@dataclass(frozen=True)
class Sampling:
    """Draw tokens instead of taking the likeliest.

    Attributes:
        generator: the noise, on the model's device; all rows of a batch draw from it in turn.
        temperature: divides the logits.
        top_k: how many of the likeliest tokens may be drawn; None for all.
        top_p: draw from the likeliest tokens that together reach this probability.
    """

    generator: torch.Generator
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn from."""
        problems = []
        if not self.temperature >= _COLDEST:
            problems.append(
                f"temperature must be at least {_COLDEST:g}, got {self.temperature}. Leave "
                "sampling out for greedy decoding."
            )
        if self.top_k is not None and self.top_k < 1:
            problems.append(f"top_k must be at least 1, got {self.top_k}. Leave it out for all.")
        if not 0 < self.top_p <= 1:
            problems.append(
                f"top_p must be above 0 and at most 1, got {self.top_p}. Use 1 for all."
            )
        if problems:
            raise SpecError(problems)


class Generated(NamedTuple):
    """Hold completions, without their prompts.

    Attributes:
        tokens: end-of-text behind a row's end.
        lengths: tokens of each row, its end-of-text included.
    """

    tokens: Int[Tensor, "B N"]
    lengths: Int[Tensor, " B"]


@torch.no_grad()
def generate(
    model: Transformer | Ensemble,
    prompts: Int[Tensor, "B T"],
    real: Bool[Tensor, "B T"] | None,
    max_new_tokens: int,
    *,
    sampling: Sampling | None = None,
    rule: RoutingRule = "prompt",
    end: int | None = END_OF_TEXT_ID,
) -> Generated:
    """Complete each prompt up to its end-of-text, or by `max_new_tokens`.

    Args:
        model: any whose method has a causal inference rule.
        prompts: padded on the left.
        real: False where `prompts` is padding; None where nothing is.
        max_new_tokens: with the longest prompt at most `max_seq_len` tokens.
        sampling: None for greedy decoding.
        rule: how methods that route segments decide; `prompt` for all others.
        end: the token that ends a row; None to go on to `max_new_tokens`.

    Raises:
        SpecError: the method has no causal inference rule, a prompt is empty, padded on the right
            or holds an unknown token, prompt and completion do not fit, or `rule` or `end` has no
            effect.
    """
    if end is not None and not 0 <= end < model.spec.vocab_size:
        raise SpecError(
            f"end must be a token below vocab_size {model.spec.vocab_size}, got {end}: no row "
            "would end. Use None to go on to max_new_tokens."
        )
    ended = torch.zeros(len(prompts), dtype=torch.bool, device=prompts.device)
    lengths = torch.zeros(len(prompts), dtype=torch.long, device=prompts.device)
    columns: list[Tensor] = []
    for drawn in steps(model, prompts, real, max_new_tokens, sampling=sampling, rule=rule):
        columns.append(drawn if end is None else drawn.masked_fill(ended, end))
        lengths = lengths + ~ended
        ended = ended if end is None else ended | (drawn == end)
        if ended.all():
            break
    return Generated(torch.stack(columns, 1), lengths)


@torch.no_grad()
def steps(
    model: Transformer | Ensemble,
    prompts: Int[Tensor, "B T"],
    real: Bool[Tensor, "B T"] | None,
    max_new_tokens: int,
    *,
    sampling: Sampling | None = None,
    rule: RoutingRule = "prompt",
) -> Iterator[Int[Tensor, " B"]]:
    """Yield the next token of each row, `max_new_tokens` times, whether or not a row has ended.

    The first one comes after the pass over the prompts, each later one after one cached step; so
    whoever times decoding times from the first to the last. Arguments and errors as of `generate`.
    """
    decoder = Decoder(model, prompts, real, max_new_tokens, rule)
    logits = decoder.start()
    for made in range(max_new_tokens):
        drawn = choose(logits, sampling)
        yield drawn
        if made + 1 < max_new_tokens:
            logits = decoder.step(drawn)


class Decoder:
    """Hold prompts and caches; return the logits of the tokens to come.

    Args:
        model: as for `generate`.
        prompts: padded on the left.
        real: False where `prompts` is padding; None where nothing is.
        max_new_tokens: how many tokens there must be room for.
        rule: how methods that route segments decide.

    Raises:
        SpecError: as `generate` does.
    """

    def __init__(
        self,
        model: Transformer | Ensemble,
        prompts: Int[Tensor, "B T"],
        real: Bool[Tensor, "B T"] | None,
        max_new_tokens: int,
        rule: RoutingRule = "prompt",
    ):
        """Check the request and move the prompts to the left edge."""
        real = torch.ones_like(prompts, dtype=torch.bool) if real is None else real
        check(model.method, model.spec, prompts, real, max_new_tokens, rule)
        self.model, self.lengths = model, real.sum(1)
        longest = int(self.lengths.max())
        places = torch.arange(longest, device=prompts.device)
        taken = prompts.shape[1] - self.lengths[:, None] + places  # B longest
        self.text = prompts.gather(1, taken.clamp(max=prompts.shape[1] - 1))
        room = longest + max_new_tokens
        parts = model.experts if isinstance(model, Ensemble) else [model]
        self.parts = [part for part in parts if isinstance(part, Transformer)]
        self.caches = [_cache(part, self.lengths, room, rule) for part in self.parts]

    def start(self) -> Float[Tensor, "B V"]:
        """Read the prompts; return the logits of the first new token."""
        return self._logits(self.text, self.lengths - 1)

    def step(self, tokens: Int[Tensor, " B"]) -> Float[Tensor, "B V"]:
        """Add one token to each row; return the logits of the next."""
        if isinstance(self.model, Ensemble):  # its posterior reads the whole text
            self.text = torch.cat((self.text, self.text[:, :1]), 1)
            self.text[torch.arange(len(tokens), device=tokens.device), self.lengths] = tokens
        self.lengths = self.lengths + 1
        return self._logits(tokens[:, None], torch.zeros_like(tokens))

    def _logits(self, tokens: Tensor, last: Tensor) -> Tensor:
        """Run one pass; return float32 logits at place `last` of each row."""
        rows = torch.arange(len(tokens), device=tokens.device)
        pairs = zip(self.parts, self.caches, strict=True)
        hidden = [part.advance(tokens, cache)[rows, last] for part, cache in pairs]  # B D each
        if isinstance(self.model, Ensemble):
            weights = self.model.posterior(self.text)[rows, self.lengths - 1]  # B N
            return self.model.mix(hidden, weights)
        return self.model.logits(hidden[0][:, None])[:, 0].float()


def _cache(part: Transformer, lengths: Tensor, room: int, rule: RoutingRule) -> Cache:
    bos = int(has_bos(part.method))
    layers = [LayerCache(room + bos) for _ in range(part.spec.num_layers)]
    return Cache(layers, lengths + bos, rule)


def choose(logits: Float[Tensor, "B V"], sampling: Sampling | None) -> Int[Tensor, " B"]:
    """Return the likeliest token of each row, or draw one."""
    if sampling is None:
        return logits.argmax(-1)
    ordered, order = (logits / sampling.temperature).sort(dim=-1, descending=True, stable=True)
    chances = ordered[:, : sampling.top_k].softmax(-1)
    # The likeliest tokens before one must not yet reach top_p; the first is always in.
    before = chances.cumsum(-1) - chances
    kept = chances.where(before < sampling.top_p, 0.0)
    place = torch.multinomial(kept, 1, generator=sampling.generator)
    return order.gather(1, place)[:, 0]


def left_pad(prompts: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Return prompts of different lengths as one tensor, padded on the left, and what is real."""
    longest = max(map(len, prompts), default=0)
    padded = [[END_OF_TEXT_ID] * (longest - len(p)) + list(p) for p in prompts]
    real = [[False] * (longest - len(p)) + [True] * len(p) for p in prompts]
    shape = len(prompts), longest  # of no prompts too
    return torch.tensor(padded).long().view(shape), torch.tensor(real).bool().view(shape)


def check(
    method: MethodSpec,
    shape: ModelSpec,
    prompts: Int[Tensor, "B T"],
    real: Bool[Tensor, "B T"],
    max_new_tokens: int,
    rule: RoutingRule,
) -> None:
    """Refuse what cannot be generated.

    Raises:
        SpecError: as `generate` says.
    """
    if reason := no_generation(method):
        raise SpecError(reason)
    problems = []
    if rule == "segment" and not isinstance(method, LoryMethod | SegmentMoEMethod):
        problems.append(
            f"rule must be prompt with method: {method.method}, which routes no segments, got "
            "segment. Leave it out."
        )
    if not len(prompts) or not real.any(1).all():
        problems.append(
            "prompts must hold a row, and a token in every row, got none. Begin one with "
            "end-of-text."
        )
    outside = prompts[real & ((prompts < 0) | (prompts >= shape.vocab_size))]
    if len(outside):
        problems.append(
            f"prompts must hold tokens below vocab_size {shape.vocab_size}, got {int(outside[0])}. "
            "Use the model's own tokenizer."
        )
    if (real[:, :-1] & ~real[:, 1:]).any():
        problems.append(
            "prompts must be padded on the left, got padding behind a token. Use left_pad."
        )
    if max_new_tokens < 1:
        problems.append(f"max_new_tokens must be at least 1, got {max_new_tokens}. Ask for more.")
    longest = int(real.sum(1).max()) if len(real) else 0
    if longest + max_new_tokens > shape.max_seq_len:
        problems.append(
            "max_new_tokens must fit: prompt and completion are at most max_seq_len "
            f"{shape.max_seq_len} tokens, got {longest} + {max_new_tokens}. Shorten the prompt or "
            "ask for fewer."
        )
    if problems:
        raise SpecError(problems)
