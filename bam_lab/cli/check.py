"""`bam-lab check`: read YAML files of every kind and report all their problems at once."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from bam_lab import resources
from bam_lab.cli import options
from bam_lab.cli.domains import registered
from bam_lab.cli.output import console
from bam_lab.errors import SpecError
from bam_lab.record.store import store_root


def check(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID|PATH]...",
            help="Ablations by id or alias, tasks and suites by name, files, folders; all if none.",
        ),
    ] = None,
    domains: options.Domains = None,
    store: options.StorePath = None,
) -> None:
    """Check ablations, configs, tasks and suites; say every problem with its file and line."""
    from bam_lab.cli.kinds import is_ablation, problems_of

    problems = list[str]()
    files = _files(_named(paths, problems) if paths else _shipped(), problems)
    added = registered(store_root(store), domains or ())
    if added and not any(is_ablation(file) for file in files):
        raise SpecError("--domain must stand with an ablation to check, got none. Leave it out.")
    if store is not None and not added:
        raise SpecError("--store must stand with --domain: a check reads nothing else of a store.")
    problems += [problem for file in files for problem in problems_of(file, added)]
    problems = list(dict.fromkeys(problems))
    if problems:
        raise SpecError(problems)
    console().print(f"{len(files)} {'file is' if len(files) == 1 else 'files are'} fine.")


def _named(given: Iterable[str], problems: list[str]) -> Iterator[Path]:
    """Yield paths as they are, and the file of an ablation, task or suite; problems are added."""
    from bam_lab.spec.load import find_ablation
    from bam_lab.spec.task_files import known_suites, known_tasks

    tasks_and_suites = known_tasks() | known_suites()
    for name in given:
        path = Path(name)
        try:
            is_path = bool(name) and bool(path.suffix or os.path.exists(path))
            yield path if is_path else tasks_and_suites.get(name) or find_ablation(name)
        except SpecError as error:
            problems += error.problems


def _shipped() -> list[Path]:
    kinds: tuple[resources.Kind, ...] = ("configs", "ablations", "published", "eval")
    return [resources.folder(kind) for kind in kinds]


def _files(paths: Iterable[Path], problems: list[str]) -> list[Path]:
    """Return every file, those of folders too; problems are added."""
    files: list[Path] = []
    for path in paths:
        if not os.path.isdir(path):  # unlike `is_dir` it takes a closed folder for none
            files.append(path)
            continue
        found = sorted(p for p in path.rglob("*") if p.suffix in (".yaml", ".yml"))
        if not found:
            problems.append(f"{path}: the folder must hold .yaml files, got none. Check the path.")
        files += found
    return list(dict.fromkeys(files))
