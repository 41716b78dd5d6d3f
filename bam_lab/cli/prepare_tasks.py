"""`bam-lab prepare --suite`: what tasks read, fetched where there is a network."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from bam_lab.cli.corpora import build, built, spec_of
from bam_lab.cli.output import console
from bam_lab.errors import SpecError
from bam_lab.record.store import Store

if TYPE_CHECKING:
    from bam_lab.spec.task_files import Asked

Suites = Annotated[
    list[str] | None,
    typer.Option(
        "--suite", metavar="NAME|PATH", help="Fetch what a suite's tasks read; repeatable."
    ),
]
Tasks = Annotated[
    list[str] | None,
    typer.Option("--task", metavar="NAME|PATH", help="Fetch what one task reads; repeatable."),
]
Corpus = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        metavar="NAME|PATH",
        help="Cuts tasks from this one's held-out text; `default` if not given.",
    ),
]


def prepare_tasks(
    suites: Sequence[str],
    tasks: Sequence[str],
    corpus: str | None,
    others: Mapping[str, object],
    root: Path,
    quiet: bool,
) -> None:
    """Build the corpus and fetch the packages and data sets that tasks lack.

    Args:
        suites: names or paths.
        tasks: names or paths.
        corpus: name or path; None for the default one.
        others: option -> value, of options that have no effect here.
        root: of the store.
        quiet: show no progress.

    Raises:
        SpecError: nothing is asked for, a name is unknown, or something could not be had.
        InputError: the corpus could not be built.
    """
    from bam_lab.evaluate.tasks.available import missing_of

    if not suites and not tasks:
        raise SpecError("prepare must name an ablation, --suite or --task, got none.")
    if odd := [name for name, value in others.items() if value]:
        raise SpecError(f"{', '.join(odd)} must not stand with --suite, --task or --corpus.")
    asked = _asked(suites, tasks)
    name, cache = corpus or "default", Store(root).cache
    lacking = missing_of(asked, "", cache, built(name, root))
    if any(one.kind == "corpus" for one in lacking):
        build(spec_of(name, root), root, quiet)
    if problems := bring(asked, cache, built(name, root), quiet):
        raise SpecError(problems)
    places = [str(root), *hub_folders(asked)]
    count = "1 task has" if len(asked) == 1 else f"{len(asked)} tasks have"
    text = f"{count} all that is read. A machine without a network needs: {', '.join(places)}"
    console().print(text, soft_wrap=True)


def bring(asked: "Sequence[Asked]", cache: Path, corpus_dir: Path | None, quiet: bool) -> list[str]:
    """Fetch what tasks lack on this machine; return what could not be had, and what would bring it.

    Args:
        asked: the tasks.
        cache: the folder of downloads.
        corpus_dir: a built corpus; None where there is none.
        quiet: show no progress.
    """
    from bam_lab.evaluate.tasks.available import missing_of
    from bam_lab.spec.tasks import HarnessTask

    lacking = missing_of(asked, "", cache, corpus_dir)
    read = {task for one in lacking if one.kind in ("package", "hub") for task in one.tasks}
    unasked = {task for one in lacking if one.kind == "module" for task in one.tasks}
    wanted = [
        one
        for one in asked
        if one.name in read and not (isinstance(one.task, HarnessTask) and one.name in unasked)
    ]
    problems = list(_fetched(wanted, cache, quiet).values())
    for one in missing_of(asked, "", cache, corpus_dir):
        if one.command:  # else its failure has been told, or it was not tried
            problems.append(f"{', '.join(one.tasks)} must have {one.what}. Run: {one.command}")
    return list(dict.fromkeys(problems))


def hub_folders(asked: "Sequence[Asked]") -> list[str]:
    """Return where lies what tasks read of the Hugging Face hub; nothing if none does."""
    from bam_lab.evaluate.tasks.available import hub_folder
    from bam_lab.spec.tasks import HarnessTask

    if not any(isinstance(one.task, HarnessTask) for one in asked):
        return []
    return [str(hub_folder("datasets")), str(hub_folder("modules"))]


def _asked(suites: Sequence[str], tasks: Sequence[str]) -> "list[Asked]":
    """Return the tasks of suites and those named by themselves, each once.

    Raises:
        SpecError: with every unknown name.
    """
    from bam_lab.spec.task_files import asked_alone, read_suite

    found: dict[str, Asked] = {}
    problems: list[str] = []
    for name, is_suite in [*((x, True) for x in suites), *((x, False) for x in tasks)]:
        try:
            asked = read_suite(name).asked if is_suite else (asked_alone(name),)
            found |= {one.name: one for one in asked}
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return list(found.values())


def _fetched(asked: "Sequence[Asked]", cache: Path, quiet: bool) -> dict[str, str]:
    if not asked:
        return {}
    from bam_lab.evaluate.tasks.fetch import fetch

    with Console(stderr=True, quiet=quiet).status("") as status:
        return fetch(asked, cache, lambda name: status.update(f"fetching for {escape(name)}"))
