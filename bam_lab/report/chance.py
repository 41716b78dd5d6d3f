"""Task scores against guessing: which cells are above chance, and averages that say so.

A model's score on a task of n items with chance level c is tested exactly: its right answers
against the binomial (n, c), which guessing gives (where items have unlike numbers of choices, c is
their mean and the test errs on the safe side). Over the models of a column the p values are Holm's;
an arm of several replicates is above chance when more than half of them are (`stats.at_least`).
A column in which no model is above chance tells nothing of models; averages stand with and without
such columns, and only over the same tasks, versions, shots and items.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from bam_lab.errors import InputError
from bam_lab.report.stats import LEVEL, at_least, holm, p_chance

Standing = Literal["above", "at", "below", "untested"]
"""Where a cell stands to chance."""


class Task(NamedTuple):
    """Name what is asked: the same name under another version or other shots is another task."""

    name: str
    version: str
    shots: int

    @property
    def label(self) -> str:
        """Return its name in a message."""
        return f"{self.name} (version {self.version}, {self.shots} shots)"


@dataclass(frozen=True)
class TaskScore:
    """Hold what one model scored on one task.

    Attributes:
        arm: the model; of an arm one a replicate.
        replicate: None where there is one only.
        items: how many were asked.
        value: the score, between 0 and 1.
        chance: what guessing gives.
        correct: right answers; None where the score is not their share, and cannot be tested so.
        runs: store keys of the stages that made it.
    """

    arm: str
    replicate: int | None
    task: Task
    items: int
    value: float
    chance: float
    correct: int | None
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskCell:
    """Hold one arm's scores on one task, tested.

    Attributes:
        scores: of its replicates.
        p: for "more than half of the replicates are above chance", Holm's over the column; None
            where untested.
    """

    scores: tuple[TaskScore, ...]
    p: float | None
    standing: Standing

    @property
    def value(self) -> float:
        """Return the mean over replicates."""
        return math.fsum(score.value for score in self.scores) / len(self.scores)


@dataclass(frozen=True)
class Average:
    """Hold an arm's mean over tasks.

    Attributes:
        every: over all tasks.
        told: over the tasks in which some model is above chance; None where there is none.
    """

    every: float
    told: float | None


Cells = dict[tuple[Task, str], TaskCell]


def tasks_of(scores: Sequence[TaskScore]) -> list[Task]:
    """Return the tasks in their order."""
    return list(dict.fromkeys(score.task for score in scores))


def cells(scores: Sequence[TaskScore]) -> Cells:
    """Test every cell against chance.

    Raises:
        InputError: scores contradict themselves or each other (`contradictions`).
    """
    if problems := contradictions(scores):
        raise InputError("\n".join(problems))
    columns: dict[Task, dict[str, list[TaskScore]]] = defaultdict(lambda: defaultdict(list))
    for score in scores:
        columns[score.task][score.arm].append(score)
    found: Cells = {}
    for task, arms in columns.items():
        above = _adjusted(arms.values(), "greater")
        below = _adjusted(arms.values(), "less")
        for (arm, own), p, less in zip(arms.items(), above, below, strict=True):
            found[task, arm] = TaskCell(tuple(own), p, _standing(p, less))
    return found


def grey(found: Cells) -> set[Task]:
    """Return the tasks of which no model's score is above chance; none that are untested."""
    standings: dict[Task, set[Standing]] = defaultdict(set)
    for (task, _), cell in found.items():
        standings[task].add(cell.standing)
    return {task for task, all_ in standings.items() if not all_ & {"above", "untested"}}


def averages(scores: Sequence[TaskScore]) -> dict[str, Average]:
    """Return each arm's mean over the tasks, with and without those of `grey`.

    Raises:
        InputError: not every arm has every task, or not in the same version, shots and items.
    """
    found = cells(scores)
    if problems := unequal(scores):
        raise InputError("\n".join(problems))
    tasks, dull = tasks_of(scores), grey(found)
    told = [task for task in tasks if task not in dull]
    return {
        arm: Average(_mean(found, arm, tasks), _mean(found, arm, told) if told else None)
        for arm in dict.fromkeys(score.arm for score in scores)
    }


def unequal(scores: Sequence[TaskScore]) -> list[str]:
    """Return why an average over tasks would compare different things; empty if it would not."""
    tasks = tasks_of(scores)
    problems = []
    for arm in dict.fromkeys(score.arm for score in scores):
        own = {score.task for score in scores if score.arm == arm}
        lacking = [task for task in tasks if task not in own]
        if lacking:
            listed = ", ".join(task.label for task in lacking)
            problems.append(
                f"{arm} must have every task of the average, got none of {listed}. Score all arms "
                "on the same tasks, versions and shots, or leave the task out for all."
            )
        replicates = {
            task: {s.replicate for s in scores if (s.arm, s.task) == (arm, task)}
            for task in tasks
            if task in own
        }
        if len(set(map(frozenset, replicates.values()))) > 1:
            problems.append(
                f"{arm} must have the same replicates of every task, got "
                f"{_numbers(replicates)}. Score the missing ones."
            )
    return problems


def contradictions(scores: Sequence[TaskScore]) -> list[str]:
    """Return what is wrong with scores by themselves, and between scores of one task."""
    problems, seen = [], set()
    for score in scores:
        where = f"{score.arm}, {score.task.label}"
        if (key := (score.arm, score.replicate, score.task)) in seen:
            problems.append(f"{where} must stand once for a replicate, got it twice.")
        seen.add(key)
        if not 0 <= score.chance < 1:
            problems.append(f"{where}: chance must be at least 0 and below 1, got {score.chance}.")
        if score.items < 1 or not 0 <= score.value <= 1:
            problems.append(
                f"{where}: a score must be between 0 and 1, of at least one item, got "
                f"{score.value} of {score.items}."
            )
        elif score.correct is not None and (
            not 0 <= score.correct <= score.items
            or abs(score.correct / score.items - score.value) > _ROUNDING
        ):
            problems.append(
                f"{where}: the score must be the share of right answers, got {score.value} and "
                f"{score.correct} of {score.items}."
            )
    for task in tasks_of(scores):
        own = [score for score in scores if score.task == task]
        for what in ("items", "chance"):
            values = list(dict.fromkeys(getattr(score, what) for score in own))
            if len(values) > 1:
                problems.append(
                    f"{task.label} must have the same {what} for every model, got "
                    f"{' and '.join(map(str, values))}. Score all of them anew without a limit."
                )
    return problems


_ROUNDING = 1e-6  # of a score that was written with few digits


def _adjusted(
    arms: Iterable[Sequence[TaskScore]], side: Literal["greater", "less"]
) -> list[float | None]:
    """Return each arm's p, Holm's over the arms that can be tested."""
    ps = [_of_arm(own, side) for own in arms]
    adjusted = iter(holm([p for p in ps if p is not None]))
    return [None if p is None else next(adjusted) for p in ps]


def _of_arm(scores: Sequence[TaskScore], side: Literal["greater", "less"]) -> float | None:
    """Return the p for "more than half of the replicates are above (below) chance"."""
    ps = []
    for score in scores:
        if score.correct is None:
            return None
        ps.append(p_chance(score.correct, score.items, score.chance, side))
    return at_least(ps, len(ps) // 2 + 1)


def _standing(above: float | None, below: float | None) -> Standing:
    if above is None or below is None:
        return "untested"
    if above < LEVEL:
        return "above"
    return "below" if below < LEVEL else "at"


def _mean(found: Cells, arm: str, tasks: Sequence[Task]) -> float:
    return math.fsum(found[task, arm].value for task in tasks) / len(tasks)


def _numbers(replicates: dict[Task, set[int | None]]) -> str:
    return ", ".join(f"{len(own)} of {task.label}" for task, own in replicates.items())
