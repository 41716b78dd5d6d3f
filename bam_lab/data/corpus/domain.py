"""The steps of a build that see a whole domain: which paragraphs and which documents stay.

A domain is seen a column at a time: nothing here reads its text.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bam_lab.data.arrays import save
from bam_lab.data.corpus import dedup, split
from bam_lab.data.corpus.split import SPLITS
from bam_lab.data.corpus.unit import Documents, Unit
from bam_lab.record.files import explained
from bam_lab.spec.corpus import Cleaning, DomainSource

STATES = (*SPLITS, "exact duplicate", "near duplicate", "above the cap", "overlaps training")
"""What became of a document: its split, or why it was dropped."""

TRAIN, VALID, TEST, EXACT, NEAR, CAP, OVERLAP = range(len(STATES))
_SORTED_TOGETHER = 4_000_000


def mark_paragraphs(units: Sequence[Unit], cleaning: Cleaning, done: Path) -> None:
    """Mark the long paragraphs that earlier ones of the domain repeat too often: `repeated.npy`.

    Args:
        units: the domain's, in order.
        cleaning: says how often a paragraph may stand.
        done: an empty file that says that the step is done.
    """
    if done.exists():
        return
    lengths = [len(unit.array("paragraphs")) for unit in units]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    marks = np.zeros(int(starts[-1]), dtype=np.bool_)
    parts = np.uint64(len(marks) // _SORTED_TOGETHER + 1)
    for part in range(int(parts)):
        keys, places = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
        for unit, start in zip(units, starts, strict=False):
            every = unit.array("paragraphs")
            mine = np.flatnonzero(every % parts == part)
            keys.append(every[mine])
            places.append(mine + start)
        late = ranks(np.concatenate(keys)) >= cleaning.paragraph_repeats
        marks[np.concatenate(places)[late]] = True
    for unit, start, length in zip(units, starts, lengths, strict=False):
        save(unit.folder / "repeated.npy", marks[start : start + length])
    with explained(done):
        done.touch()


def ranks(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return for each key how many equal ones stand before it."""
    order = np.argsort(keys, kind="stable")
    place = np.arange(len(keys))
    new = np.ones(len(keys), dtype=np.bool_)
    new[1:] = keys[order[1:]] != keys[order[:-1]]
    found = np.empty(len(keys), dtype=np.int64)
    found[order] = place - np.maximum.accumulate(np.where(new, place, 0))
    return found


def choose(units: Sequence[Unit], domain: DomainSource, cleaning: Cleaning) -> None:
    """Say what becomes of every document before contamination is looked at: `state.npy`.

    The later of two equal or nearly equal documents goes; a domain above its caps loses the same
    share of every source. Documents are taken in the order of other bits of their hash than choose
    the split, so that a cap takes from every split alike.
    """
    if all((unit.folder / "state.npy").exists() for unit in units):
        return
    every = Documents(units)
    state = np.zeros(len(every), np.uint8)
    # A column is read again where it is needed: each takes 8 bytes a document while it is held.
    state[dedup.repeats(every.field("split"), every.field("order"))] = EXACT
    left = np.flatnonzero(state == TRAIN)
    count = dedup.PERMUTATIONS // dedup.band_rows(cleaning.near_duplicate_jaccard)
    bands = (every.band(number) for number in range(count))
    near = dedup.near_repeats(left, bands, every.signatures, cleaning.near_duplicate_jaccard)
    state[left[near]] = NEAR
    left = left[~near]
    order = left[np.argsort(every.field("order")[left], kind="stable")]
    del left, near
    sizes = every.field("bytes")
    kept = split.within_caps(order, sizes, every.positions(), domain)
    state[order[~kept[order]]] = CAP
    order = order[kept[order]]
    state[order] = split.by_hash(every.field("split")[order], domain.hold_out)
    for held_out in (VALID, TEST):
        mine = order[state[order] == held_out]
        late = split.above_limit(mine, sizes, domain.hold_out)
        state[late] = CAP if domain.hold_out.whole else TRAIN
    for place, unit in enumerate(units):
        save(unit.folder / "state.npy", state[every.part(place)])


def column(units: Sequence[Unit], name: str) -> NDArray[Any]:
    """Return a column of all units, one after the other."""
    return np.concatenate([np.zeros(0, np.uint8), *(unit.array(name) for unit in units)])


def write(units: Sequence[Unit], which: int, path: Path) -> str:
    """Write one split's documents in the order of their hashes; return the file's SHA-256."""
    every = Documents(units)
    mine = np.flatnonzero(column(units, "final") == which)
    order = mine[np.argsort(every.field("order")[mine], kind="stable")]
    total = hashlib.sha256()
    temporary = path.with_suffix(".part")
    with explained(path):
        with temporary.open("wb") as file:
            for lines in every.lines(order, every.field("size")):
                file.write(lines)
                total.update(lines)
        temporary.replace(path)
    return total.hexdigest()
