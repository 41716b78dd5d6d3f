"""Split documents into train, valid and test by their content, and keep the last two honest."""

from collections.abc import Sequence
from typing import Literal

from bam_lab.data.corpus.dedup import Seen, Shingles
from bam_lab.spec.corpus import HoldOut

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


def by_hash(content_hash: str, hold_out: HoldOut) -> Split:
    """Return the split of a document: the same wherever and whenever its text is met."""
    place = int(content_hash[:13], 16) / 16**13
    if place < hold_out.test:
        return "test"
    return "valid" if place < hold_out.test + hold_out.valid else "train"


def move_overlapping(
    splits: Sequence[Split], shingles: Sequence[Shingles], overlap: float
) -> tuple[list[Split], int]:
    """Move held-out documents that repeat training text into training, until none is left.

    Each move adds to training text, so that it can cause others; the loop ends at the fixed point,
    where every held-out document shares at most `overlap` of its shingles with training.

    Returns:
        The new splits, and how many documents moved.
    """
    result = list(splits)
    training = Seen()
    for split, found in zip(result, shingles, strict=True):
        if split == "train":
            training.add(found)
    moved = 0
    while True:
        late = [
            i
            for i, split in enumerate(result)
            if split != "train" and training.overlap(shingles[i]) > overlap
        ]
        if not late:
            return result, moved
        moved += len(late)
        for i in late:
            result[i] = "train"
            training.add(shingles[i])
