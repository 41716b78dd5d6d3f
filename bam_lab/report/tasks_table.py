"""The tables of task scores: against chance, gains task by task, and what one task carries."""

import math
from collections.abc import Mapping, Sequence

from bam_lab.errors import InputError
from bam_lab.report.chance import (
    Average,
    Task,
    TaskCell,
    TaskScore,
    averages,
    cells,
    grey,
    tasks_of,
)
from bam_lab.report.gains import Gain, Majority, leave_one_out, without_largest
from bam_lab.report.scope import signed
from bam_lab.report.stats import LEVEL, holm
from bam_lab.report.table import Column, Row, Table, Value, missing, nothing

AT_CHANCE = "Not above chance (exact binomial at 5%, Holm over the models of the column)."
BELOW_CHANCE = "Below chance: worse than guessing (exact binomial at 5%, Holm over the models)."
UNTESTED = "Not a share of right answers, so not tested against chance."
ONE_ANSWER = 0.9
"""A model that gives one answer in at least this share of the items is said to."""


def scores_table(
    scores: Sequence[TaskScore],
    arms: Sequence[str],
    baseline: str,
    majorities: Mapping[tuple[Task, str], Majority] | None = None,
) -> Table:
    """Return every arm's score on every task in percent, those at chance marked.

    Args:
        scores: of all arms and tasks.
        arms: the rows' order.
        baseline: the arm that the others are compared with.
        majorities: how often each arm gave its most frequent answer, where answers are of a few.

    Raises:
        InputError: scores contradict each other.
    """
    found, tasks = cells(scores), tasks_of(scores)
    dull = grey(found)
    try:
        means, why = averages(scores), ""
    except InputError as error:
        means, why = {}, f"no average: {error}".replace("\n", " ")
    rows = [Row("chance", _chances(scores, tasks, dull), "external")]
    for arm in arms:
        values = [
            _value(found.get((task, arm)), task, task in dull, (majorities or {}).get((task, arm)))
            for task in tasks
        ]
        values += _average_values(means.get(arm), why)
        rows.append(Row(arm, tuple(values), "baseline" if arm == baseline else ""))
    columns = [Column(_heading(task, tasks), dim=task in dull) for task in tasks]
    columns += [Column("average"), Column("average, above chance")]
    return Table(
        label="tasks",
        title="Task scores, %",
        caption=_caption(scores, dull),
        corner="arm",
        columns=tuple(columns),
        rows=tuple(rows),
    )


def gains_table(gains: Mapping[str, Sequence[Gain]], baseline: str) -> Table:
    """Return the gain of each arm over the baseline on each task, in percentage points."""
    tasks = list(dict.fromkeys(gain.task for own in gains.values() for gain in own))
    known = {
        (arm, gain.task): (gain, p)
        for arm, own in gains.items()
        for gain, p in zip(own, holm([gain.p for gain in own]), strict=True)
    }
    columns, rows = [], []
    for arm in gains:
        columns += [Column("gain", arm), Column("95% interval", arm), Column("p", arm)]
    for task in tasks:
        values: list[Value] = []
        for arm in gains:
            values += _gain_values(known.get((arm, task)))
        rows.append(Row(_heading(task, tasks), tuple(values)))
    return Table(
        label="task-gains",
        title=f"Gain over {baseline} on each task, percentage points",
        caption=(
            "The same items, paired. One right or wrong answer a document: McNemar's exact test "
            "and Tango's score interval; else differences by document, signs flipped. p is Holm's "
            "over the tasks, and bold is below 5%; intervals are each for itself. This is the "
            "noise of the test set, not of training."
        ),
        corner="task",
        columns=tuple(columns),
        rows=tuple(rows),
    )


def carried_table(gains: Mapping[str, Mapping[Task, float]], baseline: str) -> Table:
    """Return each arm's mean gain over all tasks, without each one, and without the two largest.

    Args:
        gains: arm -> task -> gain in score (0.01 is a percentage point), the same tasks for all.
        baseline: whom the gains are over.

    Raises:
        InputError: arms have other tasks.
    """
    kinds = {frozenset(own) for own in gains.values()}
    if len(kinds) > 1:
        raise InputError(
            "a mean gain must be over the same tasks for every arm, got "
            f"{', '.join(f'{len(own)} of {arm}' for arm, own in gains.items())}. Score all arms on "
            "all tasks."
        )
    tasks = list(next(iter(gains.values())))
    rows = [Row("all tasks", tuple(_points(_mean(own)) for own in gains.values()), "baseline")]
    rows += [
        Row(
            f"without {_heading(task, tasks)}",
            tuple(_points(leave_one_out(own).get(task)) for own in gains.values()),
        )
        for task in tasks
    ]
    if len(tasks) > 2:
        rows.append(
            Row("without its two largest", tuple(_without_two(own) for own in gains.values()))
        )
    return Table(
        label="task-leave-out",
        title=f"Mean gain over {baseline} with a task left out, percentage points",
        caption="A gain that one or two tasks carry falls when they are left out.",
        corner="tasks",
        columns=tuple(Column(arm) for arm in gains),
        rows=tuple(rows),
    )


def answers_table(
    majorities: Mapping[tuple[Task, str], Majority], arms: Sequence[str]
) -> Table | None:
    """Return how often each arm gave its most frequent answer; None where no task has a choice."""
    tasks = list(dict.fromkeys(task for task, _ in majorities))
    if not tasks:
        return None
    wanted = []
    for task in tasks:
        one = next(own.wanted for (name, _), own in majorities.items() if name == task)
        wanted.append(Value(f"{100 * one:.1f}", 100 * one, dim=True))
    rows = [Row("right answers", tuple(wanted), "external")]
    for arm in arms:
        values = []
        for task in tasks:
            own = majorities.get((task, arm))
            values.append(
                nothing("not scored")
                if own is None
                else Value(
                    f"{100 * own.share:.1f}",
                    100 * own.share,
                    title=f"its most frequent answer is {own.answer}",
                )
            )
        rows.append(Row(arm, tuple(values)))
    return Table(
        label="task-answers",
        title="Share of the most frequent answer, %",
        caption=(
            "Of each model's own answers; in the first row of the right ones, which is what always "
            "giving that answer would score."
        ),
        corner="arm",
        columns=tuple(Column(_heading(task, tasks)) for task in tasks),
        rows=tuple(rows),
    )


def _value(cell: TaskCell | None, task: Task, dull: bool, most: Majority | None) -> Value:
    if cell is None:
        return missing(f"not scored on {task.label}")
    text = _percent([score.value for score in cell.scores])
    notes = {"above": "", "at": AT_CHANCE, "below": BELOW_CHANCE, "untested": UNTESTED}
    told = [f"{cell.scores[0].items:,} items, chance {100 * cell.scores[0].chance:.1f}%"]
    if cell.p is not None:
        told.append(f"p {cell.p:.3g}" if cell.p >= 0.001 else "p < 0.001")
    if most is not None:
        told.append(f"gives {most.answer} in {100 * most.share:.0f}% of the items")
    note = notes[cell.standing]
    if not note and most is not None and most.share >= ONE_ANSWER:
        note = f"Gives one answer in {100 * ONE_ANSWER:.0f}% of the items or more."
    runs = tuple(dict.fromkeys(run for score in cell.scores for run in score.runs))
    near = cell.standing in ("at", "below")
    return Value(
        text, 100 * cell.value, dim=dull or near, runs=runs, note=note, title=", ".join(told)
    )


def _chances(
    scores: Sequence[TaskScore], tasks: Sequence[Task], dull: set[Task]
) -> tuple[Value, ...]:
    chance = {score.task: 100 * score.chance for score in scores}
    values = [Value(f"{chance[task]:.1f}", chance[task], dim=task in dull) for task in tasks]
    return (*values, nothing(), nothing())


def _average_values(mean: Average | None, why: str) -> list[Value]:
    if mean is None:
        return [missing(why or "not scored")] * 2
    every = Value(f"{100 * mean.every:.1f}", 100 * mean.every)
    if mean.told is None:
        return [every, missing("no model is above chance on any task")]
    return [every, Value(f"{100 * mean.told:.1f}", 100 * mean.told)]


def _gain_values(found: tuple[Gain, float] | None) -> list[Value]:
    """Return the cells of a gain and its adjusted p."""
    if found is None:
        return [missing("not scored on the same items")] * 3
    gain, p = found
    title = f"{gain.items:,} items of {gain.documents:,} documents, {gain.how}"
    low, high = (signed(100 * end, 1) for end in (gain.low, gain.high))
    return [
        Value(signed(100 * gain.mean, 1), 100 * gain.mean, bold=p < LEVEL, title=title),
        Value(f"{low} to {high}", title=title),
        Value(
            f"{p:.3f}" if p >= 0.001 else "< 0.001", p, title=f"{title}; p {gain.p:.3g} by itself"
        ),
    ]


def _points(value: float | None) -> Value:
    return nothing() if value is None else Value(signed(100 * value, 2), 100 * value)


def _without_two(gains: Mapping[Task, float]) -> Value:
    value, left = without_largest(gains, 2)
    title = f"without {' and '.join(task.name for task in left)}"
    return Value(signed(100 * value, 2), 100 * value, title=title)


def _mean(gains: Mapping[Task, float]) -> float | None:
    return math.fsum(gains.values()) / len(gains) if gains else None


def _percent(values: Sequence[float]) -> str:
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return f"{100 * mean:.1f}"
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
    return f"{100 * mean:.1f} ± {100 * spread:.1f}"


def _heading(task: Task, tasks: Sequence[Task]) -> str:
    """Return the task's name, with what tells it from others of that name."""
    alike = sum(other.name == task.name for other in tasks) > 1
    return f"{task.name}, {task.shots}-shot, v{task.version}" if alike else task.name


def _caption(scores: Sequence[TaskScore], dull: set[Task]) -> str:
    several = len({score.replicate for score in scores}) > 1
    parts = ["Higher is better."]
    if several:
        parts.append("Mean ± standard deviation over replicates.")
    if dull:
        listed = ", ".join(sorted(task.name for task in dull))
        parts.append(
            f"Left out of the second average, and grey: {listed}, where no model is above chance."
        )
    parts.append("Averages are over equal tasks, versions and shots only.")
    shots = sorted({(task.name, task.shots) for task in tasks_of(scores)})
    if len({count for _, count in shots}) == 1:
        parts.append(f"Shots: {shots[0][1]}.")
    else:
        parts.append(f"Shots: {', '.join(f'{name} {count}' for name, count in shots)}.")
    return " ".join(parts)
