"""Say what a build read, dropped, kept and moved: the records of the manifest, and its limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bam_lab.data.arrays import save
from bam_lab.data.corpus.contamination import HeldOut, Mask, Texts
from bam_lab.data.corpus.domain import OVERLAP, STATES, TEST, TRAIN, VALID, column
from bam_lab.data.corpus.manifest import (
    Contamination,
    DomainRecord,
    EvaluationRecord,
    SourceRecord,
    SplitCount,
)
from bam_lab.data.corpus.split import MEGABYTE, SPLITS
from bam_lab.data.corpus.unit import Documents, Unit
from bam_lab.data.sources.pieces import Opened, Tally
from bam_lab.errors import InputError
from bam_lab.spec.corpus import CorpusSpec, DomainSource
from bam_lab.spec.sources import FilesSource, HubSource, Source


@dataclass
class Given:
    """Hold what is known of one source while its corpus is built.

    Attributes:
        domain: the source's; None for a source of evaluation items.
        opened: None where it could not be opened.
        failure: why nothing of it is used, if so.
    """

    source: Source
    domain: str | None
    opened: Opened | None = None
    failure: str | None = None
    units: list[Unit] = field(default_factory=list)
    read: dict[str, int] = field(default_factory=lambda: {"documents": 0, "bytes": 0})
    dropped: dict[str, int] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)

    def drop(self, more: Mapping[str, int]) -> None:
        """Count documents that were dropped."""
        for reason, count in more.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count

    @property
    def package(self) -> str | None:
        """Return what it is read from, with its version."""
        if self.opened is not None:
            return self.opened.package
        if isinstance(self.source, FilesSource | HubSource):
            return None
        return " ".join(filter(None, (self.source.package, self.source.version)))

    @property
    def file(self) -> dict[str, str]:
        """Return the released file and its hash, if there is one."""
        return self.opened.file if self.opened is not None else {}


@dataclass(frozen=True)
class Counts:
    """Count a domain's documents and bytes, shaped (sources, `STATES`)."""

    documents: NDArray[np.int64]
    bytes: NDArray[np.int64]

    def splits(self, source: int | slice) -> dict[str, SplitCount]:
        """Return what each split holds of a source, or of all with a slice."""
        documents = np.atleast_2d(self.documents[source]).sum(axis=0)
        size = np.atleast_2d(self.bytes[source]).sum(axis=0)
        return {s: SplitCount(int(documents[i]), int(size[i])) for i, s in enumerate(SPLITS)}

    def dropped(self, source: int) -> dict[str, int]:
        """Return why documents of a source were dropped."""
        first = len(SPLITS)
        reasons = zip(STATES[first:], self.documents[source, first:].tolist(), strict=True)
        return dict(reasons)


def count(units: Sequence[Unit], state: NDArray[np.uint8], sources: int) -> Counts:
    """Count the documents of a domain by source and state."""
    every = Documents(units)
    key = every.positions() * len(STATES) + state
    shape = (sources, len(STATES))
    size = shape[0] * shape[1]
    documents = np.bincount(key, minlength=size)
    # bincount sums weights in float64, which is exact up to 2^53 bytes
    weights = np.bincount(key, every.field("bytes"), minlength=size).astype(np.int64)
    return Counts(documents.reshape(shape), weights.reshape(shape))


def check_enough(spec: CorpusSpec, given: Sequence[Given], units: dict[str, list[Unit]]) -> None:
    """See that every domain has its least megabytes.

    Raises:
        InputError: naming the sources that failed, or what each gave.
    """
    problems = []
    for name, domain in spec.domains.items():
        counts = count(units[name], column(units[name], "state"), len(domain.sources))
        kept = counts.bytes[:, : len(SPLITS)].sum(axis=1) / MEGABYTE
        if kept.sum() >= domain.min_megabytes:
            continue
        mine = [one for one in given if one.domain == name]
        reasons = [f"  {one.source.name}: {one.failure}" for one in mine if one.failure]
        if not reasons:
            reasons = [
                f"  {one.source.name}: {size:.3f} MB" for one, size in zip(mine, kept, strict=True)
            ]
        problems.append(
            f"domains.{name} must hold at least {domain.min_megabytes} MB of clean text, got "
            f"{kept.sum():.3f} MB. Mend these sources or add others:\n" + "\n".join(reasons)
        )
    if problems:
        raise InputError("\n".join(sorted(problems)))


@dataclass(frozen=True)
class Judged:
    """Hold what became of a domain's documents in the end."""

    counts: Counts
    moved: int
    contamination: dict[str, Contamination]


def judged(units: Sequence[Unit], sources: int, held_out: HeldOut, anywhere: Mask) -> Judged:
    """Write what became of every document in the end, `final.npy`, and count it.

    Args:
        units: the domain's.
        sources: how many the domain has.
        held_out: what `contamination.settle` left of its held-out documents.
        anywhere: which runs of the table stand in the training text of any domain.
    """
    every = Documents(units)
    state = column(units, "state")
    held = np.flatnonzero((state == VALID) | (state == TEST))
    state[held[held_out.out]] = OVERLAP if held_out.whole else TRAIN
    for place, unit in enumerate(units):
        save(unit.folder / "final.npy", state[every.part(place)])
    hits = held_out.texts.hits(anywhere)
    contamination = {}
    for which in (VALID, TEST):
        mine = state[held] == which
        runs = held_out.texts.of(mine)
        contamination[STATES[which]] = Contamination(
            int(mine.sum()), int((hits[mine] > 0).sum()), len(runs), int(anywhere[runs].sum())
        )
    moved = 0 if held_out.whole else int(held_out.out.sum())
    return Judged(count(units, state, sources), moved, contamination)


def check_held_out(spec: CorpusSpec, found: Mapping[str, Judged]) -> None:
    """See that what is held out is enough to say something.

    Raises:
        InputError: naming the domain, the split and what to change.
    """
    problems = []
    for name, domain in spec.domains.items():
        for split in ("valid", "test"):
            limit = domain.hold_out
            got = found[name].counts.splits(slice(None))[split]
            enough = got.documents >= limit.min_documents or (
                got.bytes >= limit.min_megabytes * MEGABYTE
            )
            if getattr(limit, split) == 0 or enough:
                continue
            moved = f", {found[name].moved} overlapped training and moved" * (not limit.whole)
            problems.append(
                f"domains.{name}.hold_out.{split} must leave at least {limit.min_documents} "
                f"documents or {limit.min_megabytes} MB, got {got.documents} documents and "
                f"{got.bytes / MEGABYTE:.3f} MB{moved}. Raise it, add text, or lower "
                "hold_out.min_documents."
            )
    if problems:
        raise InputError("\n".join(problems))


def domain_record(domain: DomainSource, given: Sequence[Given], found: Judged) -> DomainRecord:
    """Return the record of a domain, whose sources are `given`."""
    sources = {}
    for position, one in enumerate(given):
        one.drop(found.counts.dropped(position))
        sources[one.source.name] = SourceRecord(
            licence=one.source.licence,
            package=one.package,
            file=one.file,
            read=SplitCount(**one.read),
            splits=found.counts.splits(position),
            dropped={reason: n for reason, n in sorted(one.dropped.items()) if n},
            tally=one.tally,
            failure=one.failure,
        )
    return DomainRecord(
        domain.title,
        domain.stands_in_for,
        found.counts.splits(slice(None)),
        found.moved,
        sources,
        found.contamination,
    )


def evaluation_record(one: Given, items: Texts, found: Mapping[str, Mask]) -> EvaluationRecord:
    """Return the record of a source of evaluation items."""
    return EvaluationRecord(
        licence=one.source.licence,
        package=one.package,
        file=one.file,
        items=len(items.counts),
        hits={name: int((items.hits(mask) > 0).sum()) for name, mask in found.items()},
        failure=one.failure,
    )
