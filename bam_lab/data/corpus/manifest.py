"""What a built corpus is made of: `corpus.json`, and its documents one a line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bam_lab.data.corpus.split import SPLITS
from bam_lab.record.files import read_json

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


def _domain_record(raw: dict[str, Any]) -> DomainRecord:
    sources = {
        name: SourceRecord(**{**source, "splits": _split_counts(source["splits"])})
        for name, source in raw["sources"].items()
    }
    return DomainRecord(**{**raw, "splits": _split_counts(raw["splits"]), "sources": sources})


def _split_counts(raw: dict[str, Any]) -> dict[str, SplitCount]:
    return {split: SplitCount(**raw[split]) for split in SPLITS}
