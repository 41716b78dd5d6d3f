"""`bam-lab list --tasks` and `--suites`: what can be asked, by guessing, and what is missing."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from bam_lab.cli.corpora import built, shipped
from bam_lab.cli.output import console, table
from bam_lab.errors import SpecError
from bam_lab.record.store import Store

if TYPE_CHECKING:
    from bam_lab.spec.task_files import Asked


CODE = "runs code that models write"


def tasks(root: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return every task of ours and of lm-eval that is known, and the problems of files.

    Args:
        root: of the store, for what is on this machine.
    """
    from bam_lab.evaluate.tasks.available import missing_of
    from bam_lab.spec.task_files import (
        asked_alone,
        harness_file,
        known_suites,
        known_tasks,
        read_suite,
    )

    corpus, problems = _corpus(root), list[str]()
    askers: dict[str, list[str]] = {}
    for name in known_suites():
        try:
            for one in read_suite(name).asked:
                askers.setdefault(one.name, []).append(name)
        except SpecError as error:
            problems += error.problems
    found = []
    for name in [*known_tasks(), *harness_file().tasks]:
        try:
            asked = asked_alone(name)
        except SpecError as error:
            problems += error.problems
            continue
        lacking = missing_of([asked], f"bam-lab prepare --task {name}", Store(root).cache, corpus)
        told = {"suites": askers.get(name, []), "missing": [asdict(one) for one in lacking]}
        found.append(_facts(asked) | told)
    return found, problems


def _facts(asked: "Asked") -> dict[str, Any]:
    from bam_lab.spec.tasks import TaskSpec

    task = asked.task
    facts = {"name": asked.name, "title": task.title, "version": task.version}
    scored = {"metric": task.metric, "chance": task.chance, "executes": task.executes}
    if isinstance(task, TaskSpec):
        own = {"of": "bam-lab", "group": task.group, "kind": task.kind, "shots": task.shots}
        return facts | own | scored | {"source": task.source, "licence": task.licence}
    return facts | {"of": "lm-eval"} | scored | {"source": f"{task.dataset}, Hugging Face hub"}


def suites(root: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return every suite, and the problems of files (as `tasks`)."""
    from bam_lab.evaluate.tasks.available import missing
    from bam_lab.spec.task_files import known_suites, read_suite

    corpus, problems, found = _corpus(root), list[str](), []
    for name in known_suites():
        try:
            suite = read_suite(name)
        except SpecError as error:
            problems += error.problems
            continue
        lacking = missing(suite, Store(root).cache, corpus)
        said = suite.spec.model_dump(mode="json", by_alias=True, exclude={"schema_version"})
        chances = {one.name: one.task.chance for one in suite.asked}
        asked = [one | {"chance": chances[one["task"]]} for one in said["tasks"]]
        told = {"tasks": asked, "executes": [o.name for o in suite.asked if o.task.executes]}
        found.append(said | told | {"missing": [asdict(one) for one in lacking]})
    return found, problems


def _corpus(root: Path) -> Path | None:
    """Return the folder of a corpus that is built: the default one rather than others."""
    names = sorted(shipped(), key=lambda name: name != "default")
    return next((folder for name in names if (folder := built(name, root))), None)


def show_tasks(found: Sequence[dict[str, Any]]) -> None:
    """Print the tasks as a table."""
    made = table("task", "score", ">chance", "missing here")
    for one in found:
        notes = [one["title"], one["source"], *([CODE] if one["executes"] else [])]
        kind = one["kind"].replace("_", " ") if "kind" in one else one["of"]
        made.add_row(
            _cell(one["name"], notes),
            f"{one['metric']}\n[dim]{kind}[/dim]",
            _chance(one["chance"]),
            _missing(one["missing"]),
            end_section=True,
        )
    _print(made, found, "task")


def show_suites(found: Sequence[dict[str, Any]]) -> None:
    """Print the suites as a table."""
    made = table("suite", ">tasks", ">chance", "missing here")
    for one in found:
        lacking = ", ".join(part["name"] for part in one["lacking"])
        notes = [one["title"], *([one["source"]] if one["source"] else [])]
        notes += [f"without a network: {one['offline']}"] if one["offline"] else []
        notes += [f"nothing here can ask: {lacking}"] if lacking else []
        shares = sorted({x["chance"] for x in one["tasks"] if x["chance"] is not None} or {None})
        notes += [f"{CODE}: {', '.join(one['executes'])}"] if one["executes"] else []
        made.add_row(
            _cell(one["name"], notes),
            f"{len(one['tasks'])}",
            " to ".join(dict.fromkeys([_chance(shares[0]), _chance(shares[-1])])),
            _missing(one["missing"]),
            end_section=True,
        )
    _print(made, found, "suite")


def _cell(name: str, notes: Iterable[str]) -> str:
    lines = "\n".join(notes)
    return f"[bold]{name}[/bold]\n[dim]{escape(lines)}[/dim]"


def _chance(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.3g}%"


def _missing(parts: Sequence[dict[str, Any]]) -> str:
    """Return what is missing in a few words; of the hub how much, where it is much."""
    hub = [part["what"] for part in parts if part["kind"] == "hub"]
    told = [part["what"] for part in parts if part["kind"] != "hub"]
    told += [f"{len(hub)} downloads of the Hugging Face hub"] if len(hub) > 2 else hub
    return escape("; ".join(told)) or "[dim]nothing[/dim]"


def _print(made: Any, found: Sequence[dict[str, Any]], what: str) -> None:
    """Print a table, and the commands that bring what is missing."""
    out = console()
    made.expand = True
    made.columns[0].ratio, made.columns[-1].ratio = 3, 2
    out.print(made, markup=True)
    parts = [part for one in found for part in one["missing"]]
    out.print("Chance is what guessing gives; a loss has none.", style="dim")
    if parts:
        out.print(f"`bam-lab prepare --{what} NAME` brings what is missing.", style="dim")
    for command in dict.fromkeys(part["command"] for part in parts if part["kind"] == "module"):
        out.print(f"To be installed: {command}", style="dim", soft_wrap=True)
