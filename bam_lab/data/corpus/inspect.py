"""Look at text that a user brings: what cleaning would keep of it, and what to hold out."""

from dataclasses import dataclass, field
from pathlib import Path

from bam_lab.data.corpus.clean import has_controls, keep, normalise
from bam_lab.data.sources import read
from bam_lab.data.sources.pieces import Tally
from bam_lab.errors import InputError
from bam_lab.spec.corpus import Cleaning, DomainSource, HoldOut
from bam_lab.spec.sources import FilesSource, HubSource, Source

WANTED_DOCUMENTS, WANTED_MEGABYTES = 300, 0.3
"""A held-out set below both of these says little."""
SPARE = 1.5
"""Splits fall by hash, and what overlaps training moves there: aim above what is wanted."""
MOST = 0.2
"""Held out at most, of each of the two sets."""
FEWEST = 20
"""Documents below which nothing can be held out honestly."""


@dataclass
class Seen:
    """Count what a source holds, as the default corpus's cleaning would have it."""

    documents: int = 0
    bytes: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def drop(self, reason: str) -> None:
        """Count one document that goes."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1


def inspect(source: Source, cleaning: Cleaning, cache: Path) -> Seen:
    """Read a source once, and count what cleaning would keep; near duplicates are not looked for.

    Raises:
        InputError: it cannot be read.
    """
    seen, hashes, total = Seen(), set(), Tally()
    opened = read.open_source(source, cache)
    for piece in opened.pieces:
        tally = Tally()
        for _, raw in read.documents(source, piece, tally):
            text = normalise(raw)
            tally.controls += has_controls(raw)
            if len(text) < cleaning.min_characters:
                seen.drop(f"shorter than {cleaning.min_characters} characters")
            elif len(text) > cleaning.max_characters:
                seen.drop(f"longer than {cleaning.max_characters} characters")
            elif not keep(text, cleaning):
                seen.drop("mostly not in Latin letters")
            elif (key := hash(text)) in hashes:
                seen.drop("exact duplicates")
            else:
                hashes.add(key)
                seen.documents += 1
                seen.bytes += len(text.encode())
        total.add(tally)
    if problem := total.too_broken(place(source)):
        raise InputError(problem)
    if total.broken:
        seen.notes.append(f"{total.broken} of {total.entries} entries are broken:")
        seen.notes += total.examples
    if total.controls:
        seen.notes.append(f"Control characters were taken out of {total.controls:,} documents.")
    seen.notes += [*opened.notes, *total.notes]
    return seen


def domain_of(title: str, source: Source, seen: Seen, max_megabytes: float) -> DomainSource:
    """Return the domain, its hold-out chosen by how much text there is.

    Raises:
        InputError: there is too little.
    """
    if seen.documents < FEWEST:
        dropped = "; ".join(f"{count} {reason}" for reason, count in seen.dropped.items())
        raise InputError(
            f"{place(source)} must hold at least {FEWEST} documents that cleaning keeps, so that "
            f"some can be held out, got {seen.documents} ({dropped or 'nothing was dropped'}). "
            "Cut long texts into several files, or into one document a line of a .jsonl."
        )
    kept = min(seen.bytes / 1e6, max_megabytes)
    return DomainSource(
        title=title,
        min_megabytes=round(kept / 4, 6),
        max_megabytes=max_megabytes,
        hold_out=hold_out(seen.documents * kept * 1e6 / seen.bytes, kept),
        sources=(source,),
    )


def hold_out(documents: float, megabytes: float) -> HoldOut:
    """Return shares that hold out what is wanted, or a fifth each where there is less.

    Then the sets may be as small as half of what a fifth is: splits fall by hash.
    """
    share = SPARE * min(WANTED_DOCUMENTS / documents, WANTED_MEGABYTES / megabytes)
    if share <= MOST:
        share = max(0.05, round(share, 3))
        return HoldOut(valid=share, test=share)
    return HoldOut(
        valid=MOST,
        test=MOST,
        min_documents=max(1, int(MOST * documents / 2)),
        min_megabytes=WANTED_MEGABYTES,
    )


def is_small(chosen: HoldOut) -> bool:
    """Say whether a held-out set may be smaller than one that says much."""
    return chosen.min_documents < WANTED_DOCUMENTS


def place(source: Source) -> str:
    """Return where a domain's text lies."""
    match source:
        case FilesSource():
            return f"{source.folder}/{source.pattern}"
        case HubSource():
            return source.dataset
        case _:
            return source.package
