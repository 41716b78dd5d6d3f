"""Facts to remember, "The code of apple is seven", for training text and for needles in prompts.

Training and probe use the same words and sentences, and no pair: keys and values fall into
`GROUPS` groups each, and a pair belongs to the probe where the two groups add up to 0 modulo
`GROUPS`. Every word is thus trained as key and as value, no answer can be known by heart, and of
all answers that a probe offers for a key none was ever trained (arXiv:2404.06654 §3 has the kinds
and the long form; words, lists and short form are ours).
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Literal, assert_never

from bam_lab.spec.recall import Kind

GROUPS = 4
_DIGITS = 7

_KEYS = """
apple baker bird boat bottle box boy bridge brother camp captain card castle cat chair church
city cloud coat cook corn cow cup daughter desk doctor dog door dress driver duck egg engine
eye farm farmer father fish flag flower forest friend garden girl glass gold grass hall hand
hat hill home horse hotel house island jacket key king kitchen knife ladder lady lake lamp
leaf letter lion lock map market mill mirror mother mountain mouse nail needle nest nurse oil
orange oven paper pen pencil picture pig pilot plate pool post prince queen rabbit rain ring
river road roof room rope sailor school sea shoe shop sister snake snow soldier son spoon star
stone street student table tailor teacher tent tower train tree truck uncle valley village
"""
KEYS = tuple(_KEYS.split())
"""128 nouns."""

_VALUES = """
air amber animal area army art autumn bank base beauty black blood blue body bone bread brown
butter circle clay clock coal cold copper cotton cream dance dark day dust earth east eight
evening fall fear field fire five flour four freedom frost fruit game gas gray green heart heat
honey hope hour ice iron ivory joy land law lead leather lemon light line luck magic meat metal
milk mind minute moon morning music name night nine noise north number one peace pepper pink
point power price purple rice rose salt sand seven shadow shape silk silver six skin sky sleep
smoke soap song sound south space spring square steam steel storm sugar summer sun ten thunder
time voice war water wave west wheel white wind wine winter
"""
VALUES = tuple(_VALUES.split())
"""128 words, none of them a key."""


@dataclass(frozen=True)
class Form:
    """Say how facts are written and asked for.

    Attributes:
        opening: what a prompt begins with.
        needle: a fact, of `{key}` and `{value}`.
        question: of `{key}`; a space and the value answer it.

    All may name the `{kind}` of what is asked for.
    """

    opening: str
    needle: str
    question: str

    def opened(self, values: Kind) -> str:
        """Return what comes first."""
        return self.opening.format(kind=values[:-1])

    def told(self, key: str, value: str, values: Kind) -> str:
        """Return a fact."""
        return self.needle.format(key=key, value=value, kind=values[:-1])

    def asked(self, key: str, values: Kind) -> str:
        """Return a question."""
        return self.question.format(key=key, kind=values[:-1])


SHORT = Form("", "\nThe code of {key} is {value}.", "\nThe code of {key} is")
"""For short sequences: the question is the fact again."""

LONG = Form(
    "A special magic {kind} is hidden within the following text. Make sure to memorize it. I will "
    "quiz you about the {kind} afterwards.\n",
    "\nOne of the special magic {kind}s for {key} is: {value}.",
    "\nWhat is the special magic {kind} for {key} mentioned in the provided text? The special "
    "magic {kind} for {key} mentioned in the provided text is",
)
"""RULER's form (arXiv:2404.06654, Table 2), as its programs have it, for models that answer it."""


def group_of(kind: Kind, text: str) -> int:
    """Return the group of a key or value."""
    match kind:
        case "words":
            words = KEYS if text in KEYS else VALUES
            return words.index(text) % GROUPS
        case "numbers":
            return int(text) % GROUPS
        case "uuids":
            return uuid.UUID(text).int % GROUPS
        case _:
            assert_never(kind)


def held_out(keys: Kind, key: str, values: Kind, value: str) -> bool:
    """Say whether a pair belongs to the probe and must not stand in training text."""
    return (group_of(keys, key) + group_of(values, value)) % GROUPS == 0


def distinct(
    kind: Kind, role: Literal["key", "value"], rng: Random, group: int | None = None
) -> Iterator[str]:
    """Yield keys or values in random order, none twice; of one group where it is given.

    Words come to an end, numbers and UUIDs do not.
    """
    if kind == "words":
        words = [*(KEYS if role == "key" else VALUES)]
        rng.shuffle(words)
        yield from (word for word in words if group in (None, group_of(kind, word)))
        return
    seen = set()
    while True:
        text = str(rng.randrange(10 ** (_DIGITS - 1), 10**_DIGITS))
        if kind == "uuids":
            text = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        if text not in seen and group in (None, group_of(kind, text)):
            seen.add(text)
            yield text
