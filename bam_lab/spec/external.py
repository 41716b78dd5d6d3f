"""Scores of a checkpoint that is no arm: one file a model, read beside the ablation that names it.

Such a model was trained by others, on other text, at another cost. It stands in the report as a row
of its own class, never matched, never ranked, and no claim speaks of it.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from bam_lab.errors import SpecError
from bam_lab.spec.base import Name, PositiveFloat, PositiveInt, SchemaVersion, Spec
from bam_lab.spec.reader import Document, read

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Checkpoint(Spec):
    """Say which weights were scored: where they are from, in which revision, and their SHA-256."""

    source: str
    revision: str
    sha256: Digest


class ExternalScore(Spec):
    """Hold the loss on one domain's held-out test text.

    Attributes:
        nats: negative log-likelihood, summed over the text.
        tokens: of the checkpoint's own tokenizer.
        bytes: of the text; what makes it comparable with an arm's score.
    """

    domain: Name
    nats: PositiveFloat
    tokens: PositiveInt
    bytes: PositiveInt


class External(Spec):
    """Hold what one scores file says.

    Attributes:
        id: what the row is called.
        corpus: digest of the corpus whose test text was read (`corpus.json`).
        training_tokens: as its makers say; None where they do not.
        scored_by: what made the scores: program, version, precision.
        note: what else a reader must know.
    """

    id: Name
    title: str
    checkpoint: Checkpoint
    params_total: PositiveInt
    params_active: PositiveInt
    training_tokens: PositiveInt | None
    corpus: Digest
    context: PositiveInt
    scored_by: str
    scores: tuple[ExternalScore, ...]
    note: str = ""


class ExternalFile(External):
    """Hold one scores file."""

    schema_version: SchemaVersion = Field(alias="schema")


def read_external(
    document: Document, names: tuple[str, ...]
) -> tuple[tuple[External, ...], list[str]]:
    """Return the files that `report.external` names, relative to the ablation's, and problems."""
    found, problems = [], []
    for index, name in enumerate(names):
        if not name.endswith((".yaml", ".yml")):
            loc = ("report", "external", index)
            text = f"must be a YAML file beside this one, got {name!r}. Write its path."
            problems.append(document.problem(loc, text))
            continue
        try:
            told = read(Path(document.file).parent / name, ExternalFile)
            found.append(
                External(**{field: getattr(told, field) for field in External.model_fields})
            )
        except SpecError as error:
            problems += error.problems
    return tuple(found), problems


def external_problems(
    document: Document,
    external: tuple[External, ...],
    arms: Collection[str],
    domains: Collection[str],
) -> Iterator[str]:
    """Check that external rows have names of their own, and scores on domains of the corpus."""
    seen: set[str] = set()
    for one in external:
        loc = ("report", "external")
        if one.id in arms or one.id in seen:
            taken = "an arm's" if one.id in arms else "another file's"
            yield document.problem(loc, f"must have a name of its own, got {taken}: {one.id!r}.")
        seen.add(one.id)
        for score in one.scores:
            if score.domain not in domains:
                yield document.problem(
                    loc,
                    f"must have scores on domains of the corpus ({', '.join(domains)}), got "
                    f"{score.domain!r} in {one.id}. Take it out.",
                )
        named = [score.domain for score in one.scores]
        if twice := sorted({name for name in named if named.count(name) > 1}):
            yield document.problem(
                loc, f"must have each domain once, got {twice[0]!r} again in {one.id}. Remove one."
            )
