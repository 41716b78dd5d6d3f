"""`bam-lab list`: every ablation, what it asks, what it costs here, whether it is done; tasks."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from bam_lab.cli import filters, options
from bam_lab.cli.output import amount, console, duration, print_json, table
from bam_lab.errors import SpecError
from bam_lab.record.store import Store, store_root

if TYPE_CHECKING:
    from bam_lab.cli.planning import Plan


@dataclass(frozen=True)
class Entry:
    """Hold one line of the list; `problem` is set where the file cannot be planned.

    Attributes:
        bases: the arms as the file names them, axes and settings not written out.
    """

    id: str
    aliases: tuple[str, ...] = ()
    title: str = ""
    paper: str = ""
    table: str = ""
    place: str = ""
    arms: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    scale: str = ""
    replicates: int = 0
    training_flops: int = 0
    seconds_left: float = 0.0
    stages: int = 0
    stages_done: int = 0
    problem: str = ""


def list_(
    question: filters.Question = None,
    claim: filters.Claim = None,
    paper: filters.Paper = None,
    tasks: Annotated[bool, typer.Option("--tasks", help="The tasks instead.")] = False,
    suites: Annotated[bool, typer.Option("--suites", help="The suites of tasks instead.")] = False,
    scale: options.Scale = None,
    replicates: options.Replicates = None,
    store: options.StorePath = None,
    json: options.Json = False,
) -> None:
    """List the ablations with their aliases, paper, arms and cost: all, or those asked for."""
    from bam_lab.spec.load import list_ablations

    if tasks or suites:
        odd: dict[str, object] = {
            "--question": question,
            "--claim": claim,
            "--paper": paper,
            "--scale": scale,
        }
        odd |= {"--replicates": replicates, "--suites": tasks and suites}
        _list_asked(tasks, [name for name, value in odd.items() if value], store_root(store), json)
        return
    where = Store(store_root(store))
    paths = filters.chosen(list_ablations(), filters.Filter(question, claim, paper))
    entries = [_entry(path.stem, scale, replicates, where) for path in paths]
    problems = [entry.problem for entry in entries if entry.problem]
    if json:
        print_json([asdict(entry) for entry in entries])
    else:
        _show(entries)
    if problems:
        raise SpecError(sorted({line for problem in problems for line in problem.splitlines()}))


def _list_asked(tasks: bool, odd: list[str], root: Path, json: bool) -> None:
    """List the tasks, or else the suites; of the other options none has an effect."""
    from bam_lab.cli import list_tasks

    if odd:
        option = "--tasks" if tasks else "--suites"
        raise SpecError(f"{option} must stand without {', '.join(odd)}. Leave one out.")
    found, problems = list_tasks.tasks(root) if tasks else list_tasks.suites(root)
    if json:
        print_json(found)
    else:
        (list_tasks.show_tasks if tasks else list_tasks.show_suites)(found)
    if problems:
        raise SpecError(sorted(set(problems)))


def _show(entries: "list[Entry]") -> None:
    out = console()
    if not entries:
        out.print("No ablation is all that is asked for at once. Leave one option out.")
        return
    made = table("ablation", ">arms", ">FLOPs", ">time", ">done")
    made.columns[0].min_width = max((len(entry.id) for entry in entries), default=0)
    for entry in entries:
        if entry.problem:
            made.add_row(f"{entry.id}\n[dim]does not check[/dim]", end_section=True)
            continue
        names = f"[bold]{entry.id}[/bold]\n{escape(entry.title)}\n[dim]{', '.join(entry.bases)}"
        names += "".join(f"\n{setting}" for setting in _settings(entry))
        also = f"\nalso: {', '.join(entry.aliases)}" if entry.aliases else ""
        made.add_row(
            f"{names}\n{escape(entry.place)}{also}[/dim]",
            f"{len(entry.arms)}",
            amount(entry.training_flops),
            duration(entry.seconds_left),
            f"{entry.stages_done}/{entry.stages}",
            end_section=True,
        )
    out.print(made, markup=True)
    out.print(
        "FLOPs of all training; time left; stages done. "
        "`bam-lab plan ID` shows the details, `bam-lab reproduce ID` runs it.",
        style="dim",
    )


def _settings(entry: Entry) -> list[str]:
    return [f"under {', '.join(entry.settings)}"] if entry.settings else []


def _entry(reference: str, scale: str | None, replicates: int | None, store: Store) -> Entry:
    from bam_lab.cli.planning import make_plan
    from bam_lab.spec.load import load_ablation

    try:
        made = make_plan(load_ablation(reference, scale=scale), store, replicates, None)
    except SpecError as error:
        return Entry(id=reference, problem=str(error))
    return _filled(made)


def _filled(made: "Plan") -> Entry:
    spec = made.resolved.ablation
    return Entry(
        id=spec.id,
        aliases=spec.aliases,
        title=spec.title,
        paper=spec.source.paper,
        table=spec.source.table,
        place=spec.source.place,
        arms=tuple(made.resolved.arms),
        bases=tuple(dict.fromkeys(made.resolved.bases.values())),
        settings=tuple(name for name, _ in made.resolved.settings if name),
        scale=made.resolved.scale_name,
        replicates=made.replicates,
        training_flops=sum(row.training_flops for row in made.stages),
        seconds_left=made.seconds_left,
        stages=len(made.stages),
        stages_done=sum(row.done for row in made.stages),
    )
