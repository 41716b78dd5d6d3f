"""Needles in prompts: one fact in a long text, or several of which one is asked for.

    text = texts(tokens_dir, domains, "test", max(lengths), most=64)
    cells = needle_cells(encode, text, ASKED["needles"], lengths, depths, count=20, rng_seed=0)
    rows = needle_rows(model, cells, precision="float32")           # needle_scores.py

After RULER (arXiv:2404.06654 §3, S-NIAH and MK-NIAH), by a generator of our own, whose forms are
short enough for short sequences. What is unusual:
- prompts have exactly the length asked for, in tokens, and the needle begins exactly where its
  depth says: text is put together from tokens. Depth 0 is the start, 1 right before the question;
- the haystack is a contiguous part of a held-out document, which goes on behind each needle, or a
  repeated noise;
- guessing gives exactly 1 / candidates: the answer is one of them at random, and all have as many
  tokens. Where there is one needle they are values of none; where there are several, values of
  others, and over all depths of a length the needle that is asked for is as often the first of the
  candidates in the text as the last: whoever reads the values and tells no keys apart guesses;
- no pair of a key and a candidate is ever trained (`data/recall.py`), and of the haystack none is.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from random import Random
from typing import Literal, NamedTuple

from bam_lab.data.recall import GROUPS, LONG, SHORT, Form, distinct
from bam_lab.errors import InputError, SpecError
from bam_lab.evaluate.probes.texts import Text
from bam_lab.spec.recall import Kind

Encode = Callable[[str], Sequence[int]]
"""A tokenizer's, that adds nothing of its own to the text."""

Tokens = tuple[int, ...]

NOISE = " The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
"""RULER's."""


@dataclass(frozen=True)
class Asked:
    """Say what is asked.

    Attributes:
        name: the task, in rows.
        distractors: needles with other keys in the same text; `fill` puts in as many as there is
            room for, which is RULER's hardest form.
        haystack: what stands between them.
        candidates: answers to choose from.
        keys: what is asked by.
        values: what is asked for.
        form: how it is written; models that never trained on `SHORT` may know `LONG`.
    """

    name: str
    distractors: int | Literal["fill"] = 0
    haystack: Literal["text", "noise"] = "text"
    candidates: int = 4
    keys: Kind = "words"
    values: Kind = "words"
    form: Form = SHORT

    def __post_init__(self) -> None:
        """Refuse what has no chance level."""
        problems = []
        if self.candidates < 2:
            problems.append(f"candidates must be at least 2, got {self.candidates}. Ask for more.")
        if self.distractors != "fill" and self.distractors < 0:
            problems.append(f"distractors must be at least 0, got {self.distractors}.")
        elif self.distractors not in ("fill", 0) and self.candidates > 1 + int(self.distractors):
            problems.append(
                "candidates must be at most one more than distractors, whose values they are, got "
                f"{self.candidates} of {self.distractors}. Ask for fewer, or hide more."
            )
        if problems:
            raise SpecError(problems)


ASKED = {
    asked.name: asked
    for asked in (
        Asked("needle"),
        Asked("needles", distractors=3),
        Asked("needles-only", distractors="fill"),
        Asked("ruler-single", haystack="noise", values="numbers", form=LONG),
        Asked("ruler-single-text", values="numbers", form=LONG),
        Asked("ruler-multi-key", distractors=3, values="numbers", form=LONG),
        Asked("ruler-needles-only", distractors="fill", values="numbers", form=LONG),
        Asked("ruler-uuids", distractors="fill", keys="uuids", values="uuids", form=LONG),
    )
}
"""The first three for short sequences; RULER's niah_single_1 and _2 and niah_multikey_1 to _3."""


class Needle(NamedTuple):
    """Hold one question.

    Attributes:
        prompt: tokens up to the answer.
        candidates: tokens of each answer; all as many.
        answer: which of them is right.
        place: where the needle begins in the prompt.
        facts: the pairs in the text, the one that is asked for first.
    """

    prompt: Tokens
    candidates: tuple[Tokens, ...]
    answer: int
    place: int
    facts: tuple[tuple[str, str], ...]


class Cell(NamedTuple):
    """Hold the questions of one length and depth."""

    asked: Asked
    length: int
    depth: float
    needles: tuple[Needle, ...]


def needle_cells(
    encode: Encode,
    text: Sequence[Text],
    asked: Asked,
    lengths: Sequence[int],
    depths: Sequence[float],
    count: int,
    rng_seed: int,
) -> list[Cell]:
    """Return `count` questions for every length and depth, the same ones in every order of them.

    Args:
        encode: the model's tokenizer.
        text: haystacks; questions take domains in turn, and of each its rows in turn.
        asked: what is asked.
        lengths: of prompts in tokens, the question included; the answer comes on top.
        depths: from 0 to 1, evenly, and at least as many as candidates, so that there is room for
            the needles before and behind.
        count: questions of each length and depth.
        rng_seed: of keys, values and places.

    Raises:
        SpecError: a depth is none.
        InputError: a prompt has no room for what is asked, rows of text are too short, or there are
            not enough words.
    """
    if bad := [depth for depth in depths if not 0 <= depth <= 1]:
        raise SpecError(f"depths must be from 0 to 1, got {bad[0]}. Write shares of the prompt.")
    size, cells = value_size(encode, asked), []
    for length in lengths:
        for depth in depths:
            needles = []
            for number in range(count):
                turn, of_domain = divmod(number, len(text))
                rows = text[of_domain].tokens
                rng = Random(f"{rng_seed}/{asked.name}/{length}/{depth}/{number}")
                hay = rows[turn % len(rows)].tolist()
                # Evenly from 0 to 1, over the questions of all depths.
                place = (sorted(depths).index(depth) + (number + 0.5) / count) / len(depths)
                before = int(place * asked.candidates)
                needles.append(make_needle(encode, hay, asked, size, length, depth, before, rng))
            cells.append(Cell(asked, length, depth, tuple(needles)))
    return cells


def value_size(encode: Encode, asked: Asked) -> int:
    """Return the number of tokens that most values have; others serve no question."""
    values = islice(distinct(asked.values, "value", Random(0)), 256)
    sizes = Counter(len(_answer(encode, asked, "key", value)) for value in values)
    return max(sizes, key=lambda size: (sizes[size], -size))


def make_needle(
    encode: Encode,
    hay: Sequence[int],
    asked: Asked,
    size: int,
    length: int,
    depth: float,
    before: int,
    rng: Random,
) -> Needle:
    """Return one question of exactly `length` tokens over a part of `hay`.

    Args:
        encode: as for `needle_cells`.
        hay: tokens of one document.
        asked: what is asked.
        size: tokens of a value.
        length: tokens of the prompt.
        depth: from 0 to 1.
        before: candidates that stand before it in the text, where there are several needles.
        rng: of all that is random.

    Raises:
        InputError: as `needle_cells` says.
    """
    draw = _Draw(encode, asked, size, rng)
    key, value = draw.key(), draw.value(candidate=True)
    opening = tuple(encode(asked.form.opened(asked.values)))
    question = tuple(encode(asked.form.asked(key, asked.values)))
    needle = draw.needle(key, value)
    room = length - len(opening) - len(question) - len(needle)
    if room < 0:
        raise InputError(
            f"length must be at least {length - room} tokens for {asked.name}, got {length}. Ask "
            "for longer prompts."
        )
    left = int(depth * room + 0.5)
    sides, facts = _others(draw, (left, room - left), before)
    plain = left - sum(map(len, sides[0])), room - left - sum(map(len, sides[1]))
    filler = _filler(encode, hay, asked, sum(plain))
    body = _woven(filler[: plain[0]], sides[0], rng) + needle
    body += _woven(filler[plain[0] :], sides[1], rng)
    candidates = [value, *(own for _, own in facts[: asked.candidates - 1])]
    if not asked.distractors:
        candidates += [draw.value(candidate=True) for _ in range(asked.candidates - 1)]
    rng.shuffle(candidates)
    return Needle(
        opening + body + question,
        tuple(_answer(encode, asked, key, one) for one in candidates),
        candidates.index(value),
        len(opening) + left,
        ((key, value), *facts),
    )


class _Draw:
    """Draw the facts of one question, none of them twice, and say them in tokens."""

    def __init__(self, encode: Encode, asked: Asked, size: int, rng: Random):
        self.encode, self.asked, self.size, self.rng = encode, asked, size, rng
        group = rng.randrange(GROUPS)
        self.keys = distinct(asked.keys, "key", rng, group)
        self.values = distinct(asked.values, "value", rng, -group % GROUPS)
        self.spare: list[str] = []  # values of another size, for needles that no answer is of

    def key(self) -> str:
        for key in self.keys:
            return key
        raise self._too_few("keys")

    def value(self, candidate: bool) -> str:
        if self.spare and not candidate:
            return self.spare.pop(0)
        for value in self.values:
            answer = _answer(self.encode, self.asked, "key", value)
            if not candidate or len(answer) == self.size:
                return value
            self.spare.append(value)
        raise self._too_few("values")

    def needle(self, key: str, value: str) -> Tokens:
        return tuple(self.encode(self.asked.form.told(key, value, self.asked.values)))

    def _too_few(self, what: str) -> InputError:
        return InputError(
            f"{self.asked.name} must find enough {what} for its needles, got no more words. Ask "
            f"for shorter prompts, fewer distractors or candidates, or {what}: numbers."
        )


def _answer(encode: Encode, asked: Asked, key: str, value: str) -> Tokens:
    """Return the tokens of a value as they go on after the question."""
    text = asked.form.asked(key, asked.values)
    question, whole = list(encode(text)), list(encode(f"{text} {value}"))
    if whole[: len(question)] != question:
        raise InputError(
            f"the tokenizer must keep the tokens of {text!r} where {value!r} follows, got others. "
            "Probe this model with another form."
        )
    return tuple(whole[len(question) :])


def _others(
    draw: _Draw, room: tuple[int, int], before: int
) -> tuple[tuple[list[Tokens], list[Tokens]], list[tuple[str, str]]]:
    """Return the other needles before and behind the one that is asked for, and their facts.

    Rivals, whose values are candidates, come first in the facts, `before` of them before it. The
    first and the last needle of a text are rivals or it: no place in the order tells it apart.
    """
    asked, free = draw.asked, list(room)
    rivals: tuple[list[Tokens], list[Tokens]] = ([], [])
    extras: tuple[list[Tokens], list[Tokens]] = ([], [])
    facts: list[tuple[str, str]] = []
    while asked.distractors == "fill" or len(facts) < asked.distractors:
        rival = len(facts) < asked.candidates - 1
        fact = draw.key(), draw.value(candidate=rival)
        needle = draw.needle(*fact)
        allowed = [int(len(facts) >= before)] if rival else [i for i in (0, 1) if rivals[i]]
        fits = [side for side in allowed if free[side] >= len(needle)]
        if not fits and asked.distractors == "fill" and not rival:
            break
        if not fits:
            raise InputError(
                f"length must leave room for all needles of {asked.name}, got {room[0]} tokens "
                f"before and {room[1]} behind the one that is asked for, for {before} and "
                f"{asked.candidates - 1 - before} or more others. Ask for longer prompts, fewer "
                f"distractors, or depths evenly from 0 to 1, at least {asked.candidates}."
            )
        # By the room that is left, so that they lie as evenly as the text allows.
        side = draw.rng.choices(fits, [free[side] for side in fits])[0]
        (rivals if rival else extras)[side].append(needle)
        free[side] -= len(needle)
        facts.append(fact)
    left, right = rivals[0][1:] + extras[0], rivals[1][:-1] + extras[1]
    draw.rng.shuffle(left)
    draw.rng.shuffle(right)
    return (rivals[0][:1] + left, right + rivals[1][-1:]), facts


def _filler(encode: Encode, hay: Sequence[int], asked: Asked, size: int) -> Tokens:
    if asked.haystack == "noise":
        return tuple(islice(cycle(encode(NOISE)), size))
    if len(hay) < size:
        raise InputError(
            f"rows of text must have {size} tokens for this length, got {len(hay)}. Cut longer "
            "ones, or ask for shorter prompts."
        )
    return tuple(hay[:size])


def _woven(filler: Tokens, needles: Sequence[Tokens], rng: Random) -> Tokens:
    """Return the text with needles at random places of it."""
    cuts = sorted(rng.randint(0, len(filler)) for _ in needles)
    woven: Tokens = ()
    for start, stop, needle in zip((0, *cuts), (*cuts, len(filler)), (*needles, ()), strict=True):
        woven += filler[start:stop] + needle
    return woven
