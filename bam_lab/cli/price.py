"""`bam-lab plan --all`: what the whole catalogue costs, and what sharing stages saves.

A stage that several ablations need is trained once and counted once. Hours are of this machine:
core-seconds over its cores for single ablations, and for all together also as they would be
scheduled, one stage waiting for another.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console

from bam_lab.cli.output import amount, duration, table
from bam_lab.cost.time import Job, makespan
from bam_lab.errors import SpecError
from bam_lab.record.manifest import cores
from bam_lab.record.store import Store

if TYPE_CHECKING:
    from bam_lab.cli.planning import Plan, StageRow


@dataclass(frozen=True)
class Entry:
    """Hold one ablation's part of the price.

    Attributes:
        stages: how many it has; `new` of them no ablation above it has.
        seconds: what it takes alone, all cores busy.
        added_seconds: what it takes after those above it.
        problem: why it cannot be planned.
    """

    id: str
    arms: int = 0
    replicates: int = 0
    stages: int = 0
    new: int = 0
    seconds: float = 0.0
    added_seconds: float = 0.0
    problem: str = ""


@dataclass(frozen=True)
class Price:
    """Hold what a catalogue costs.

    Attributes:
        distinct: stages, each counted once; `done` of them are in the store.
        training_flops: of the distinct stages.
        seconds: of the distinct stages with all cores busy.
        wall_seconds: of the distinct stages as they would be scheduled.
        wall_seconds_left: of those that are not done.
        alone_seconds: what all ablations would take if none shared a stage.
        time_from: where the times come from.
    """

    entries: tuple[Entry, ...]
    cores: int
    distinct: int
    done: int
    training_flops: int
    seconds: float
    wall_seconds: float
    wall_seconds_left: float
    alone_seconds: float
    time_from: str

    @property
    def saved(self) -> float:
        """The share of the time that sharing saves."""
        return 1 - self.seconds / self.alone_seconds if self.alone_seconds else 0.0


def price(
    references: Sequence[str], store: Store, scale: str | None, replicates: int | None
) -> Price:
    """Plan ablations together, in the order given."""
    from bam_lab.cli.planning import make_plan
    from bam_lab.spec.load import load_ablation

    entries: list[Entry] = []
    known: dict[str, StageRow] = {}
    pace = ""
    for reference in references:
        try:
            made = make_plan(load_ablation(reference, scale=scale), store, replicates, None)
        except SpecError as error:
            entries.append(Entry(id=reference, problem=str(error)))
            continue
        new = {row.key: row for row in made.stages if row.key not in known}
        known |= new
        entries.append(_entry(made, list(new.values())))
        pace = made.pace
    return Price(
        entries=tuple(entries),
        cores=cores(),
        distinct=len(known),
        done=sum(row.done for row in known.values()),
        training_flops=sum(row.training_flops for row in known.values()),
        seconds=_busy(known.values()),
        wall_seconds=_wall(known, undone=False),
        wall_seconds_left=_wall(known, undone=True),
        alone_seconds=sum(entry.seconds for entry in entries),
        time_from=pace,
    )


def _entry(made: "Plan", new: "Sequence[StageRow]") -> Entry:
    return Entry(
        id=made.resolved.ablation.id,
        arms=len(made.resolved.arms),
        replicates=made.replicates,
        stages=len(made.stages),
        new=len(new),
        seconds=_busy(made.stages),
        added_seconds=_busy(new),
    )


def _busy(rows: "Iterable[StageRow]") -> float:
    """Return core-seconds over the machine's cores."""
    available = cores()
    return sum(row.seconds * min(row.threads, available) for row in rows) / available


def _wall(rows: "dict[str, StageRow]", undone: bool) -> float:
    place = {key: index for index, key in enumerate(rows)}
    jobs = [
        Job(
            seconds=0.0 if undone and row.done else row.seconds,
            threads=row.threads,
            needs=[place[key] for key in row.needs],
        )
        for row in rows.values()
    ]
    return makespan(jobs, cores())


def as_json(found: Price) -> dict[str, Any]:
    """Return the price as plain data."""
    return {**asdict(found), "saved": found.saved}


def show(found: Price, out: Console) -> None:
    """Print the price: a row an ablation, then all together."""
    made = table("ablation", ">arms", ">new", ">alone", ">adds")
    planned = [entry for entry in found.entries if not entry.problem]
    made.columns[0].min_width = max((len(entry.id) for entry in planned), default=0)
    for entry in planned:
        times = (entry.seconds, entry.added_seconds)
        new = f"{entry.new}/{entry.stages}"
        made.add_row(entry.id, str(entry.arms), new, *map(duration, times))
    out.print(made)
    repeated = {entry.replicates for entry in planned}
    repeats = f"{min(repeated)}" if len(repeated) == 1 else "as many as each says"
    out.print(
        "new: stages that no ablation above has, of all; adds: their time. Times are of "
        f"{found.cores} busy cores. Replicates: {repeats}.\n",
        style="dim",
    )
    out.print(
        f"All together: {found.distinct} distinct stages, {found.done} done; "
        f"{amount(found.training_flops)} training FLOPs; {duration(found.wall_seconds)} on "
        f"{found.cores} cores ({duration(found.seconds)} if they were always busy), "
        f"{duration(found.wall_seconds_left)} of it left."
    )
    out.print(
        f"One by one, nothing shared: {duration(found.alone_seconds)}. "
        f"Sharing saves {found.saved:.0%}."
    )
    out.print(f"Times: {found.time_from}.", style="dim")
    if left := [entry.id for entry in found.entries if entry.problem]:
        out.print(f"Not in it, since they do not check: {', '.join(left)}.")


def refuse_problems(found: Price) -> None:
    """Raise the problems of ablations that could not be planned.

    Raises:
        SpecError: with all of them, each once.
    """
    if problems := [entry.problem for entry in found.entries if entry.problem]:
        raise SpecError(list(dict.fromkeys(line for text in problems for line in text.split("\n"))))
