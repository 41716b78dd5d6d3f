"""Documents cut from held-out text: true continuations, last words, next lines.

Texts are {id, source, text}. All draws are of `random.Random` seeded by the spec's seed and a
text's id, so that a text gives the same candidates whatever stands beside it.
"""

import hashlib
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bam_lab.evaluate.tasks.documents import Built, Item, alike
from bam_lab.spec.tasks import Continuation, LastWord, NextLine

Text = Mapping[str, str]

_TRIES = 20
"""Places that are tried in one stretch of a text before it is passed over."""
_UNFIT = "without a fitting place"
_LONELY = "with too few others of their source for wrong answers"


@dataclass(frozen=True)
class _Cut:
    """Hold one place of a text: what stands before it, and what goes on."""

    id: str
    source: str
    text: str
    before: str
    after: str


def continuation(texts: Iterable[Text], spec: Continuation) -> Built:
    """Return questions which of several passages goes on from a text.

    The wrong ones begin at such places in other texts of the same source; no two are alike.
    """
    find = _words_after if spec.unit == "words" else _lines_after
    cuts, dropped = _cuts(texts, spec, lambda text, at: find(text, at, spec))
    by_source: dict[str, list[_Cut]] = defaultdict(list)
    for cut in cuts:
        by_source[cut.source].append(cut)
    documents = []
    for cut in cuts:
        rng = _rng(spec.rng_seed, cut.id)
        wrong = _others(cut, by_source[cut.source], spec.choices - 1, rng)
        if wrong is None:
            dropped[_LONELY] += 1
            continue
        answer = rng.randrange(spec.choices)
        choices = [*wrong[:answer], cut.after, *wrong[answer:]]
        documents.append(_item(cut) | {"choices": choices, "answer": answer})
    return Built(tuple(documents[: spec.items]), (), dict(dropped))


def last_word(texts: Iterable[Text], spec: LastWord) -> Built:
    """Return passages whose last word is asked, which ends a sentence and has stood before."""
    cuts, dropped = _cuts(texts, spec, lambda text, at: _word_at(text, at, spec))
    return _closed(cuts, dropped, spec.items, " ")


def next_line(texts: Iterable[Text], spec: NextLine) -> Built:
    """Return lines of code whose next one is asked, with its indentation."""
    cuts, dropped = _cuts(texts, spec, lambda text, at: _line_at(text, at, spec))
    return _closed(cuts, dropped, spec.items, "\n")


def _closed(cuts: Sequence[_Cut], dropped: Counter[str], items: int, joint: str) -> Built:
    # lm-eval reads a lone continuation as it stands, with nothing between.
    found = tuple(_item(cut) | {"target": joint + cut.after} for cut in cuts[:items])
    return Built(found, (), dict(dropped))


def _item(cut: _Cut) -> Item:
    return {"id": cut.id, "source": cut.source, "prompt": cut.before}


def _cuts(
    texts: Iterable[Text],
    spec: Continuation | LastWord | NextLine,
    find: Callable[[str, int], tuple[str, str] | None],
) -> tuple[list[_Cut], Counter[str]]:
    """Return places in texts, the first of each text before the second of any.

    Texts come in an order of hashes, so that the first ones are a sample of all sources.

    Args:
        texts: held-out text.
        spec: how many places of one text, and the seed.
        find: gives what stands before and after the first fitting place from an offset on.
    """
    found: list[tuple[int, str, _Cut]] = []
    dropped: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()
    for text in sorted(texts, key=lambda text: _order(spec.rng_seed, text["id"])):
        rng, length = _rng(spec.rng_seed, text["id"]), len(text["text"])
        stretch = length / spec.items_per_document
        count = 0
        for number in range(spec.items_per_document):
            for _ in range(_TRIES):
                offset = int(stretch * (number + rng.random()))
                parts = find(text["text"], offset)
                if parts is not None and parts not in seen:
                    seen.add(parts)
                    name = f"{text['id']}#{number}"
                    order = _order(spec.rng_seed, text["id"])
                    cut = _Cut(name, text["source"], text["id"], *parts)
                    found.append((count, order, cut))
                    count += 1
                    break
        if not count:
            dropped[_UNFIT] += 1
    found.sort(key=lambda one: one[:2])
    return [cut for _, _, cut in found], dropped


def _others(
    cut: _Cut, candidates: Sequence[_Cut], count: int, rng: random.Random
) -> list[str] | None:
    """Draw passages of other texts, no two alike; None where there are too few."""
    chosen: list[_Cut] = []
    for other in rng.sample(candidates, len(candidates)):
        taken = [cut, *chosen]
        if any(other.text == one.text or alike(other.after, one.after) for one in taken):
            continue
        chosen.append(other)
        if len(chosen) == count:
            return [one.after for one in chosen]
    return None


def _words_after(text: str, at: int, spec: Continuation) -> tuple[str, str] | None:
    place = re.compile(r"(?<=\S) (?=\S)").search(text, at)
    if place is None:
        return None
    before = _before(text, place.start(), spec.prompt_characters, r"\s")
    after = text[place.end() : place.end() + spec.answer_characters + 1]
    if len(after) <= spec.answer_characters:
        return None  # the text ends
    after = re.sub(r"\S*$", "", after).rstrip()  # whole words only
    return _kept(before, after, spec)


def _lines_after(text: str, at: int, spec: Continuation) -> tuple[str, str] | None:
    place = re.compile(r"(?<=\S)\n(?=[ \t]*\S)").search(text, at)
    if place is None:
        return None
    before = _before(text, place.start(), spec.prompt_characters, r"\n")
    after = text[place.end() : place.end() + spec.answer_characters + 1]
    if len(after) > spec.answer_characters:
        after = after.rpartition("\n")[0]  # whole lines only
    return _kept(before, after.rstrip(), spec)


def _kept(before: str | None, after: str, spec: Continuation) -> tuple[str, str] | None:
    """Return both parts if there is enough of each: half of what was asked, and words in it."""
    letters = sum(character.isalnum() for character in after)
    if before is None or 2 * len(after) < spec.answer_characters:
        return None
    return (before, after) if 4 * letters >= spec.answer_characters else None


def _word_at(text: str, at: int, spec: LastWord) -> tuple[str, str] | None:
    word = re.compile(rf"(?<=\S) ([^\W\d_]{{{spec.word_characters},}})(?=[.;:!?](\s|$))").search(
        text, at
    )
    if word is None:
        return None
    before = _before(text, word.start(), spec.prompt_characters, r"\s")
    if before is None or word[1].casefold() not in re.findall(r"[^\W\d_]+", before.casefold()):
        return None
    return before, word[1]


def _line_at(text: str, at: int, spec: NextLine) -> tuple[str, str] | None:
    line = re.compile(r"(?<=\S)\n([ \t]*\S.*)(?=\n)").search(text, at)
    if line is None:
        return None
    before = _before(text, line.start(), spec.prompt_characters, r"\n")
    least, most = spec.answer_characters
    if before is None or not least <= len(line[1].strip()) <= most:
        return None
    return before, line[1].rstrip()


def _before(text: str, end: int, characters: int, boundary: str) -> str | None:
    """Return the text up to `end` from a boundary on; None where it is half of what was asked."""
    start = 0
    if end > characters:
        found = re.compile(boundary).search(text, end - characters, end)
        if found is None:
            return None
        start = found.end()
    before = text[start:end].lstrip("\n")
    return before if 2 * len(before) >= characters else None


def _rng(seed: int, name: str) -> random.Random:
    return random.Random(f"{seed} {name}")  # of a text: by its SHA-512, the same everywhere


def _order(seed: int, name: str) -> str:
    return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()
