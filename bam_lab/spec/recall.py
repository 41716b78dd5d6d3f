"""A source of generated text: facts, other sentences, then every fact once more."""

from typing import Annotated, Literal

from pydantic import Field

from bam_lab.spec.base import Name, NonNegativeInt, PositiveFloat, PositiveInt, Spec

Kind = Literal["words", "numbers", "uuids"]
"""What a key or value is: a word of our lists, a number of 7 digits, or a UUID."""


class RecallSource(Spec):
    """Make text in which facts must be remembered, for models that are asked for needles.

    No pair of it is one of the probe's (`data/recall.py`); no network, and no package.

    Attributes:
        documents: how many.
        facts: in one document, at most; of 128 words as many as always leave a value that fits.
        sentences: of another kind around them, at most.
        keys: what is remembered by.
        values: what is remembered.
    """

    kind: Literal["recall"]
    name: Name
    documents: PositiveInt
    facts: Annotated[int, Field(ge=1, le=64)] = 6
    sentences: NonNegativeInt = 6
    keys: Kind = "words"
    values: Kind = "words"
    rng_seed: int
    licence: str
    max_megabytes: PositiveFloat
