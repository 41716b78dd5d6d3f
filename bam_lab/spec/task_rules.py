"""Check what no single field of a task's file can know: that its parts fit one another."""

from collections.abc import Iterator
from pathlib import Path

from bam_lab.spec.reader import Document
from bam_lab.spec.tasks import (
    CHANCE_DIGITS,
    Exercises,
    HumanEval,
    TaskSpec,
    chance_of,
    kinds_of,
    metrics_of,
)


def task_problems(document: Document, task: TaskSpec) -> Iterator[str]:
    """Say every problem of a task whose fields are right one by one."""
    folder = Path(document.file).resolve().parent.name
    if task.name != folder:
        yield document.problem(
            ("name",), f"must be its folder's name {folder!r}, got {task.name!r}. Rename one."
        )
    kinds = kinds_of(task.documents)
    if task.kind not in kinds:
        yield document.problem(
            ("kind",),
            f"must be {' or '.join(kinds)} with documents of build {task.documents.build}, got "
            f"{task.kind}.",
        )
        return
    metrics = metrics_of(task.kind, task.documents)
    if task.metric not in metrics:
        yield document.problem(
            ("metric",), f"must be {' or '.join(metrics)} of kind {task.kind}, got {task.metric}."
        )
    yield from _chance_problems(document, task)
    if task.shots > task.examples:
        yield document.problem(
            ("shots",), f"must be at most examples ({task.examples}), got {task.shots}."
        )
    yield from _build_problems(document, task)


def _chance_problems(document: Document, task: TaskSpec) -> Iterator[str]:
    expected = chance_of(task.kind, task.documents)
    if expected is None:
        if task.chance is not None:
            yield document.problem(
                ("chance",), f"must be null: a {task.kind} has none, got {task.chance:g}."
            )
    elif task.chance is None or abs(task.chance - expected) > CHANCE_DIGITS:
        got = "null" if task.chance is None else f"{task.chance:g}"
        yield document.problem(
            ("chance",), f"must be {expected:.4g}, what guessing gives here, got {got}."
        )


def _build_problems(document: Document, task: TaskSpec) -> Iterator[str]:
    match task.documents:
        case Exercises(rng_seed=seed, trained=trained) if seed == trained.rng_seed:
            yield document.problem(
                ("documents", "rng_seed"),
                f"must differ from trained.rng_seed, got {seed} twice: it would ask what was "
                "trained on.",
            )
        case HumanEval(answer_characters=characters):
            place = ("documents", "answer_characters")
            if task.kind == "generate" and characters is not None:
                text = f"must be null where a completion is tested, got {characters}."
                yield document.problem(place, text)
            if task.kind == "loss" and characters is None:
                yield document.problem(place, "must be a number for a loss, got null.")
