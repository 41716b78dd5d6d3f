"""What a built corpus is made of: `corpus.json`, and its documents one a line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bam_lab.data.corpus.split import SPLITS
from bam_lab.data.sources.pieces import Tally
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
        read: documents before cleaning.
        dropped: reason -> documents.
        tally: what was met that is no document.
        failure: why nothing could be read of it, if so.
    """

    licence: str
    package: str | None
    file: dict[str, str]
    read: SplitCount
    splits: dict[str, SplitCount]
    dropped: dict[str, int]
    tally: Tally
    failure: str | None


@dataclass(frozen=True)
class Contamination:
    """Count what of a held-out set stands in the training text of any domain.

    Attributes:
        documents_hit: those with any run of 13 words that does.
        ngrams: distinct runs of 13 words.
        ngrams_hit: those of them that do.
    """

    documents: int
    documents_hit: int
    ngrams: int
    ngrams_hit: int


@dataclass(frozen=True)
class DomainRecord:
    """Record what one domain holds.

    Attributes:
        moved: held-out documents that overlapped training and moved there.
        contamination: of valid and test, after that.
    """

    title: str
    stands_in_for: str | None
    splits: dict[str, SplitCount]
    moved: int
    sources: dict[str, SourceRecord]
    contamination: dict[str, Contamination]


@dataclass(frozen=True)
class EvaluationRecord:
    """Record one source of evaluation items.

    Attributes:
        hits: domain -> items with any run of 13 words that stands in its training text.
        failure: why it could not be read, if so.
    """

    licence: str
    package: str | None
    file: dict[str, str]
    items: int
    hits: dict[str, int]
    failure: str | None


@dataclass(frozen=True)
class CorpusManifest:
    """Record a corpus; `digest` is a hash over the content of all its text files.

    Attributes:
        general: the domain that stands in for Common Crawl, or is it.
    """

    digest: str
    files: dict[str, str]
    general: str
    domains: dict[str, DomainRecord] = field(default_factory=dict)
    evaluation: dict[str, EvaluationRecord] = field(default_factory=dict)


def read_manifest(corpus_dir: Path) -> CorpusManifest:
    """Read `corpus.json` of a built corpus."""
    raw = read_json(corpus_dir / MANIFEST)
    domains = {name: _domain_record(record) for name, record in raw["domains"].items()}
    evaluation = {name: EvaluationRecord(**record) for name, record in raw["evaluation"].items()}
    return CorpusManifest(raw["digest"], raw["files"], raw["general"], domains, evaluation)


def read_documents(corpus_dir: Path, domain: str, split: str) -> Iterator[dict[str, str]]:
    """Yield the documents of one file: id, source, text."""
    with (corpus_dir / f"{domain}.{split}.jsonl").open(encoding="utf-8", newline="\n") as file:
        for line in file:
            yield json.loads(line)


def _domain_record(raw: dict[str, Any]) -> DomainRecord:
    return DomainRecord(
        **{
            **raw,
            "splits": _split_counts(raw["splits"]),
            "sources": {name: _source_record(source) for name, source in raw["sources"].items()},
            "contamination": {
                split: Contamination(**counts) for split, counts in raw["contamination"].items()
            },
        }
    )


def _source_record(raw: dict[str, Any]) -> SourceRecord:
    return SourceRecord(
        **{
            **raw,
            "read": SplitCount(**raw["read"]),
            "splits": _split_counts(raw["splits"]),
            "tally": Tally(**raw["tally"]),
        }
    )


def _split_counts(raw: dict[str, Any]) -> dict[str, SplitCount]:
    return {split: SplitCount(**raw[split]) for split in SPLITS}
