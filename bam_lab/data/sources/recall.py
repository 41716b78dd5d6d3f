"""Make text in which facts stand among other sentences and are then asked for, each once."""

from collections.abc import Iterator
from itertools import islice
from random import Random

from bam_lab.data.recall import SHORT, distinct, held_out
from bam_lab.spec.recall import RecallSource

_VALUES = 128
"""Of which each key takes its own; twice as many as `facts` may be, as a quarter does not fit."""
_SOME = (
    "old",
    "new",
    "small",
    "large",
    "quiet",
    "bright",
    "heavy",
    "empty",
    "broken",
    "clean",
    "early",
    "late",
)
_WHO = ("man", "woman", "child", "worker", "writer", "singer", "traveller", "neighbour")
_DID = (
    "saw",
    "found",
    "carried",
    "painted",
    "sold",
    "opened",
    "watched",
    "forgot",
    "left",
    "moved",
)
_WHAT = (
    "wagon",
    "basket",
    "window",
    "ribbon",
    "statue",
    "barrel",
    "carpet",
    "ticket",
    "drum",
    "kettle",
)


def documents(source: RecallSource) -> Iterator[tuple[str, str]]:
    """Yield (name, text); document i depends on the seed and i alone."""
    for index in range(source.documents):
        yield f"recall#{index}", _text(source, Random(f"{source.rng_seed}/{index}"))


def _text(source: RecallSource, rng: Random) -> str:
    facts = _facts(source, rng)
    told = [SHORT.told(key, value, source.values) for key, value in facts]
    body = told + [_sentence(rng) for _ in range(rng.randint(0, source.sentences))]
    rng.shuffle(body)
    # Another order than the first, or whoever reads lines in turn would know the answers.
    asked = rng.sample(told, len(told))
    return "".join(body + asked).strip()


def _facts(source: RecallSource, rng: Random) -> list[tuple[str, str]]:
    """Draw pairs that are none of the probe's; keys differ, and values."""
    keys = islice(distinct(source.keys, "key", rng), rng.randint(1, source.facts))
    values = list(islice(distinct(source.values, "value", rng), _VALUES))
    facts = []
    for key in keys:
        free = (v for v in values if not held_out(source.keys, key, source.values, v))
        facts.append((key, next(free)))
        values.remove(facts[-1][1])
    return facts


def _sentence(rng: Random) -> str:
    some, who, did, other, what = map(rng.choice, (_SOME, _WHO, _DID, _SOME, _WHAT))
    return f" The {some} {who} {did} the {other} {what}."
