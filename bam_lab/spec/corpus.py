"""What text there is: domains, the sources of each, and how they are cleaned and split."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from bam_lab.errors import SpecError
from bam_lab.spec.base import Name, PositiveFloat, PositiveInt, SchemaVersion, Share, Spec
from bam_lab.spec.sources import FilesSource, HubSource, Source


class HoldOut(Spec):
    """Set the shares of documents (by content hash) that training never sees.

    With shares that sum to 1 nothing of the domain is trained on: it is held out as a whole.

    Attributes:
        min_documents: each of the two must hold as many documents ...
        min_megabytes: ... or as many megabytes of text.
        max_megabytes: each of the two holds at most; what is above it is trained on.
    """

    valid: Share
    test: Share
    min_documents: PositiveInt = 300
    min_megabytes: PositiveFloat = 0.3
    max_megabytes: PositiveFloat = 10.0

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if not 0 < self.valid + self.test <= 1:
            raise ValueError("valid and test must sum to more than 0 and at most 1")
        if not self.test:
            raise ValueError("test must be above 0: every model is scored on it")
        return self

    @property
    def whole(self) -> bool:
        """Return whether the domain is held out as a whole."""
        return self.valid + self.test == 1


class DomainSource(Spec):
    """Describe one domain's text.

    Attributes:
        title: what the text really is, for reports.
        stands_in_for: the papers' source in whose place it is used, if any.
        min_megabytes: below this the build stops, naming the sources that failed.
        hold_out: shares before overlapping documents move to training.
        sources: in order; where two overlap, the earlier keeps its text.
    """

    title: str
    stands_in_for: str | None = None
    min_megabytes: PositiveFloat
    max_megabytes: PositiveFloat
    hold_out: HoldOut
    sources: tuple[Source, ...]

    @model_validator(mode="after")
    def _has_data(self) -> Self:
        if not self.sources:
            raise ValueError("sources must name at least one source")
        if self.min_megabytes > self.max_megabytes:
            raise ValueError("min_megabytes must be at most max_megabytes")
        return self


class Cleaning(Spec):
    """Set what is dropped, in this order.

    Attributes:
        min_characters: shorter documents go.
        max_characters: longer documents go (mostly tables of data).
        min_ascii_share: documents in other scripts go.
        paragraph_characters: paragraphs at least this long ...
        paragraph_repeats: ... stay at most this often in a domain.
        shingle_words: words in a shingle, the unit of near duplication.
        near_duplicate_jaccard: of two documents with a larger Jaccard similarity of their shingles
            (estimated by MinHash) the later goes.
        held_out_overlap: a held-out document with a larger share of its runs of 13 words in
            training moves there.
    """

    min_characters: PositiveInt
    max_characters: PositiveInt
    min_ascii_share: Share
    paragraph_characters: PositiveInt
    paragraph_repeats: PositiveInt
    shingle_words: PositiveInt
    near_duplicate_jaccard: Share
    held_out_overlap: Share

    @model_validator(mode="after")
    def _keeps_some(self) -> Self:
        if self.min_characters > self.max_characters:
            raise ValueError("min_characters must be at most max_characters")
        return self


class CorpusSpec(Spec):
    """Hold every domain's sources and the cleaning that all share.

    Attributes:
        general: the domain that stands in for the papers' Common Crawl, or is it.
        evaluation: sources of evaluation items; nobody trains on them, and the manifest says how
            many of each occur in training text.
    """

    schema_version: SchemaVersion = Field(alias="schema")
    general: Name
    cleaning: Cleaning
    domains: dict[Name, DomainSource]
    evaluation: tuple[Source, ...] = ()

    @model_validator(mode="after")
    def _distinct_names(self) -> Self:
        if not self.domains:
            raise ValueError("domains must name at least one domain")
        if self.general not in self.domains:
            raise ValueError(f"general must name a domain, got {self.general}")
        if self.domains[self.general].hold_out.whole:
            raise ValueError(
                f"general must name a domain that is trained on, got {self.general}, which is held "
                "out as a whole"
            )
        names = [source.name for source in sources_of(self)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"source names must differ, got {', '.join(twice)} more than once")
        return self


def held_out_only(spec: CorpusSpec) -> tuple[str, ...]:
    """Return the domains that are held out as a whole: every model is scored, none trained."""
    return tuple(name for name, domain in spec.domains.items() if domain.hold_out.whole)


def sources_of(spec: CorpusSpec) -> list[Source]:
    """Return every source, those of evaluation items last."""
    of_domains = [source for domain in spec.domains.values() for source in domain.sources]
    return [*of_domains, *spec.evaluation]


def located(spec: CorpusSpec, base: Path) -> CorpusSpec:
    """Return the spec with local folders taken from `base`, made absolute.

    Raises:
        SpecError: a Hugging Face data set is no folder, and nothing limits what is read of it.
    """

    def change(source: Source) -> Source:
        match source:
            case FilesSource():
                folder = str((base / source.folder).resolve())
                return source.model_copy(update={"folder": folder})
            case HubSource() if (base / source.dataset).is_dir():
                folder = str((base / source.dataset).resolve())
                return source.model_copy(update={"dataset": folder})
            case HubSource():
                unread.extend(_hub_problems(source, base))
                return source
            case _:
                return source

    unread: list[str] = []
    found = _map_sources(spec, change)
    if unread:
        raise SpecError(unread)
    return found


def _hub_problems(source: HubSource, base: Path) -> list[str]:
    """Say what is wrong with a data set that is no folder."""
    if not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", source.dataset):
        return [
            f"{source.name}: dataset must be a name on the hub or a folder, got {source.dataset}; "
            f"there is no such folder in {base}. Mend it in the corpus."
        ]
    if source.max_documents is None and source.max_read_megabytes is None:
        return [
            f"{source.name}: max_documents or max_read_megabytes must be given for a data set on "
            f"the hub, got neither for {source.dataset}. Give one of them."
        ]
    return []


def identity(spec: CorpusSpec) -> dict[str, Any]:
    """Return what a fingerprint covers: everything but where local files lie.

    What is in those files enters through `data.sources.local.inputs_digest`.
    """

    def change(source: Source) -> Source:
        match source:
            case FilesSource():
                return source.model_copy(update={"folder": "."})
            case HubSource() if Path(source.dataset).is_absolute():
                return source.model_copy(update={"dataset": "."})
            case _:
                return source

    bare = _map_sources(spec, change)
    return bare.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _map_sources(spec: CorpusSpec, change: Callable[[Source], Source]) -> CorpusSpec:
    domains = {
        name: domain.model_copy(update={"sources": tuple(map(change, domain.sources))})
        for name, domain in spec.domains.items()
    }
    evaluation = tuple(map(change, spec.evaluation))
    return spec.model_copy(update={"domains": domains, "evaluation": evaluation})
