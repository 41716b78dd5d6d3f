"""Find tasks and suites by name or path, read them, and say all that is wrong with one.

suite = read_suite("law-tort")
for asked in suite.asked:
    asked.name, asked.shots, asked.group, asked.task
"""

import os.path
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bam_lab import resources
from bam_lab.errors import SpecError
from bam_lab.spec.messages import nearest
from bam_lab.spec.reader import Document, load, read, validate
from bam_lab.spec.task_rules import task_problems
from bam_lab.spec.tasks import HarnessFile, HarnessTask, SuiteSpec, TaskSpec

TASK_FILE = "task.yaml"


@dataclass(frozen=True)
class Asked:
    """Hold one task of a suite.

    Attributes:
        name: as the suite writes it; of lm-eval's, as that knows it.
    """

    name: str
    shots: int
    group: str
    task: TaskSpec | HarnessTask


@dataclass(frozen=True)
class Suite:
    """Hold a suite with its tasks read.

    Attributes:
        reference: the name or path that it was read by.
    """

    spec: SuiteSpec
    asked: tuple[Asked, ...]
    reference: str


def known_tasks() -> dict[str, Path]:
    """Return the tasks of ours: name -> file."""
    found = sorted((resources.folder("eval") / "tasks").glob(f"*/{TASK_FILE}"))
    return {path.parent.name: path for path in found}


def known_suites() -> dict[str, Path]:
    """Return the suites: name -> file."""
    return {
        path.stem: path for path in sorted((resources.folder("eval") / "suites").glob("*.yaml"))
    }


@cache
def harness_file() -> HarnessFile:
    """Return what is known of lm-eval's tasks.

    Raises:
        SpecError: the file has problems.
    """
    return read(resources.folder("eval") / "lm-eval.yaml", HarnessFile)


def read_task(reference: str) -> TaskSpec:
    """Read a task of ours by its name, or by the path of its file.

    Raises:
        SpecError: there is none of that name, or the file has problems.
    """
    document = load(_path(reference, "task", known_tasks()))
    task, problems = validate(document, TaskSpec)
    if task is None or (problems := list(task_problems(document, task))):
        raise SpecError(problems)
    return task


def asked_alone(reference: str) -> Asked:
    """Return a task of ours or of lm-eval's by itself, with its own shots and group.

    Raises:
        SpecError: there is none of that name, or its file has problems.
    """
    theirs = harness_file().tasks.get(reference)
    if theirs is not None:
        return Asked(reference, 0, "", theirs)
    if not _is_path(reference) and reference not in known_tasks():
        known = [*known_tasks(), *harness_file().tasks]
        raise SpecError(f"{reference or 'an empty name'}: {_unknown('task', reference, known)}")
    task = read_task(reference)
    return Asked(task.name, task.shots, task.group, task)


def read_suite(reference: str) -> Suite:
    """Read a suite by its name, or by the path of its file, with all its tasks.

    Raises:
        SpecError: there is none of that name, or it or one of its tasks has problems.
    """
    document = load(_path(reference, "suite", known_suites()))
    spec, problems = validate(document, SuiteSpec)
    if spec is None or (problems := list(suite_problems(document, spec))):
        raise SpecError(problems)
    tasks = [_asked_task(document, entry.task) for entry in spec.tasks]
    asked = tuple(
        Asked(
            task.name if isinstance(task, TaskSpec) else entry.task, entry.shots, entry.group, task
        )
        for entry, task in zip(spec.tasks, tasks, strict=True)
    )
    return Suite(spec, asked, reference)


def suite_problems(document: Document, suite: SuiteSpec) -> Iterator[str]:
    """Check a suite: its name, and that each task is there, once, with examples for its shots."""
    stem = Path(document.file).stem
    if suite.name != stem:
        yield document.problem(
            ("name",), f"must be the file's name {stem!r}, got {suite.name!r}. Rename one."
        )
    if suite.offline is not None and suite.offline not in known_suites():
        yield document.problem(("offline",), _unknown("suite", suite.offline, known_suites()))
    seen: dict[str, str] = {}
    for index, entry in enumerate(suite.tasks):
        place = ("tasks", index, "task")
        known = [*known_tasks(), *harness_file().tasks]
        if not entry.task.endswith(".yaml") and entry.task not in known:
            yield document.problem(place, _unknown("task", entry.task, known))
            continue
        try:
            task = _asked_task(document, entry.task)
        except SpecError as error:
            yield from error.problems  # of its own file
            continue
        name = task.name if isinstance(task, TaskSpec) else entry.task
        if name in seen:
            yield document.problem(
                place, f"must stand once, got {name!r} again ({seen[name]}). Remove one."
            )
        seen[name] = entry.task
        if isinstance(task, TaskSpec) and entry.shots > task.examples:
            yield document.problem(
                ("tasks", index, "shots"),
                f"must be at most the {task.examples} examples that {name} sets aside, got "
                f"{entry.shots}.",
            )


def _asked_task(document: Document, name: str) -> TaskSpec | HarnessTask:
    if name.endswith(".yaml"):
        return read_task(os.path.normpath(Path(document.file).parent / name))
    theirs = harness_file().tasks.get(name)
    return read_task(name) if theirs is None else theirs


def _path(reference: str, kind: str, known: dict[str, Path]) -> Path:
    """Return the file of a name, or the path that was given for it.

    Raises:
        SpecError: nothing has that name.
    """
    if _is_path(reference):
        return Path(reference)
    if reference not in known:
        raise SpecError(f"{reference or 'an empty name'}: {_unknown(kind, reference, known)}")
    return known[reference]


def _is_path(reference: str) -> bool:
    return reference.endswith((".yaml", ".yml")) or "/" in reference


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    return f"must be a known {kind}, got {name!r}. {nearest(name, known)}"
