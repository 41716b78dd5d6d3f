"""Tasks in the report: each suite's scores against chance, gains, and the dense models beside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bam_lab.errors import InputError
from bam_lab.report.blocks import dense_experts
from bam_lab.report.chance import Task, TaskScore
from bam_lab.report.dense_tasks import SEED_MODEL
from bam_lab.report.evaluated_measures import group_accuracy, groups_of, task_rows
from bam_lab.report.evidence import Evaluated, Evidence, SuiteFact
from bam_lab.report.gains import Answer, Gain, Majority, gain, majority
from bam_lab.report.settings import views
from bam_lab.report.table import Column, Row, Table, Value, hoist, missing, nothing
from bam_lab.report.tables import arms_in_order, mark_of
from bam_lab.report.tasks_table import answers_table, carried_table, gains_table, scores_table
from bam_lab.spec.branches import home_of


@dataclass(frozen=True)
class SuiteResult:
    """Hold what one suite says under one setting.

    Attributes:
        lines: sentences: tasks without a score, and why; tasks that cannot be asked.
    """

    suite: SuiteFact
    setting: str
    tables: tuple[Table, ...]
    lines: tuple[str, ...]


def suite_results(evidence: Evidence) -> tuple[SuiteResult, ...]:
    """Return every suite's result under every setting, in the order of the file."""
    return tuple(
        _result(evidence, view, setting, suite)
        for suite in evidence.suites
        for setting, view in views(evidence)
    )


def _result(evidence: Evidence, view: Evidence, setting: str, suite: SuiteFact) -> SuiteResult:
    found = [one for one in view.evaluations if one.kind == "tasks" and not one.about]
    own = [one for one in found if one.role == "arm"]
    arms = arms_in_order(view)
    scores = [score for one in own for score in scores_of(suite, one)]
    tables: list[Table] = [groups_table(view, suite, found)]
    if scores:
        items = evidence.items
        answers = {task: _answers(suite, own, items, task) for task in _tasks(suite)}
        majorities = _majorities(suite, own, answers)
        baseline = view.baseline_of(arms[0])
        tables.append(scores_table(scores, arms, baseline, majorities))
        tables += _gain_tables(suite, own, answers, arms, baseline)
        if (shares := answers_table(majorities, arms)) is not None:
            tables.append(shares)
    if (losses := losses_table(view, suite, found)) is not None:
        tables.append(losses)
    lines = [f"{name}: {why}" for name, why in _failures(suite, found).items()]
    lines += [f"{name}, of the paper's table, is not asked: {why}" for name, why in _lacking(suite)]
    named = tuple(_named(table, suite, setting, len(evidence.suites) > 1) for table in tables)
    return SuiteResult(suite, setting, named, tuple(lines))


def scores_of(suite: SuiteFact, found: Evaluated) -> list[TaskScore]:
    """Return a model's score on each task of a suite that has a chance level."""
    facts = {task["name"]: task for task in suite.tasks}
    return [
        TaskScore(
            arm=found.name,
            replicate=found.replicate,
            task=_task(row),
            items=int(row["n"]),
            value=float(row["value"]),
            chance=float(facts[name]["chance"]),
            correct=round(row["value"] * row["n"]),
            runs=found.runs,
        )
        for name, row in task_rows(suite, found).items()
        if facts[name]["chance"] is not None
    ]


def groups_table(evidence: Evidence, suite: SuiteFact, found: Sequence[Evaluated]) -> Table:
    """Return accuracy by group of tasks: dense models, the best of the experts, then the arms."""
    groups = groups_of(suite)
    rows = []
    experts = [name for name in dense_experts(evidence) if home_of(name) == name]
    dense = [name for name in (SEED_MODEL, *experts) if _of(found, name, dense=True)]
    for name in dense:
        home = evidence.general if name == SEED_MODEL else name
        values = tuple(_group(suite, _of(found, name, dense=True), g, g == home) for g in groups)
        head = "seed model" if name == SEED_MODEL else f"{name} expert"
        rows.append(Row(head, values, "external"))
    if len(dense) > 1:
        best = tuple(_best(row.values[i] for row in rows) for i in range(len(groups)))
        rows.append(Row("best of them", best, "external"))
    for arm in arms_in_order(evidence):
        values = tuple(_group(suite, _of(found, arm), g) for g in groups)
        rows.append(hoist(Row(arm, values, mark_of(evidence, arm))))
    home = " Shaded: a dense model's own domain." if len(dense) > 1 else ""
    return Table(
        label="task-groups",
        title="Accuracy by group of tasks, %",
        caption=(
            "Mean over the group's tasks that have a chance level; mean ± standard deviation over "
            f"replicates. Not a test: the next table has one.{home}"
        ),
        corner="model",
        columns=tuple(Column(group) for group in groups),
        rows=tuple(rows),
    )


def losses_table(evidence: Evidence, suite: SuiteFact, found: Sequence[Evaluated]) -> Table | None:
    """Return the losses of a suite's tasks that have no chance level; None where there are none."""
    tasks = [task["name"] for task in suite.tasks if task["chance"] is None]
    if not tasks:
        return None
    rows = []
    for arm in arms_in_order(evidence):
        own = _of(found, arm)
        values = tuple(
            _mean(own, [(task_rows(suite, one).get(name) or {}).get("value") for one in own], 3)
            for name in tasks
        )
        rows.append(hoist(Row(arm, values, mark_of(evidence, arm))))
    return Table(
        label="task-losses",
        title="Losses of right answers, bits per byte",
        caption="Lower is better; there is no chance level.",
        corner="arm",
        columns=tuple(Column(name) for name in tasks),
        rows=tuple(rows),
    )


def _gain_tables(
    suite: SuiteFact,
    own: Sequence[Evaluated],
    answers: Mapping[str, Sequence[Answer]],
    arms: Sequence[str],
    baseline: str,
) -> list[Table]:
    """Return gains over the baseline task by task, and what single tasks carry of them."""
    gains: dict[str, list[Gain]] = {}
    for arm in arms:
        if arm == baseline or not any(one.rows for one in own if one.name == arm):
            continue
        gains[arm] = []
        for name in _tasks(suite):
            try:
                task = answers[name][0].task if answers[name] else None
                if task:
                    gains[arm].append(gain(answers[name], arm, baseline, task))
            except InputError:
                continue  # the table says which are not paired
    if not any(gains.values()):
        return []
    tables = [gains_table(gains, baseline)]
    means = {arm: {one.task: one.mean for one in every} for arm, every in gains.items()}
    if len({frozenset(one) for one in means.values()}) == 1:
        tables.append(carried_table(means, baseline))
    return tables


def _answers(
    suite: SuiteFact,
    own: Sequence[Evaluated],
    items: Mapping[str, Mapping[str, Any]],
    name: str,
) -> list[Answer]:
    """Return every arm's answers to a task, of those that were asked the same items."""
    if name not in items:
        return []
    shared = items[name]
    found = []
    for one in own:
        raw, row = one.answers.get(name), task_rows(suite, one).get(name)
        if raw is None or row is None or raw["digest"] != shared["digest"]:
            continue
        task = _task(row)
        columns = zip(shared["document"], raw["value"], raw["given"], shared["wanted"], strict=True)
        found += [
            Answer(
                one.name,
                one.replicate,
                task,
                str(document),
                str(number),
                value,
                None if given is None else str(given),
                None if wanted is None else str(wanted),
            )
            for number, (document, value, given, wanted) in enumerate(columns)
        ]
    return found


def _majorities(
    suite: SuiteFact, own: Sequence[Evaluated], answers: Mapping[str, Sequence[Answer]]
) -> dict[tuple[Task, str], Majority]:
    found = {}
    for name in _tasks(suite):
        if not answers[name]:
            continue
        task = answers[name][0].task
        for arm in dict.fromkeys(one.name for one in own):
            if (most := majority(answers[name], arm, task)) is not None:
                found[task, arm] = most
    return found


def _tasks(suite: SuiteFact) -> list[str]:
    return [task["name"] for task in suite.tasks if task["chance"] is not None]


def _task(row: Mapping[str, Any]) -> Task:
    return Task(row["task"], str(row["version"]), int(row["shots"]))


def _of(found: Sequence[Evaluated], name: str, dense: bool = False) -> list[Evaluated]:
    roles = (SEED_MODEL, "expert") if dense else ("arm",)
    return [one for one in found if one.name == name and one.role in roles]


def _group(suite: SuiteFact, own: Sequence[Evaluated], group: str, home: bool = False) -> Value:
    values = [group_accuracy(suite, one, group) for one in own]
    shown = _mean(own, [None if v is None else 100 * v for v, _ in values], 1)
    why = next((why for _, why in values if why), "not asked of this model")
    return replace(shown, home=home) if shown.number is not None else missing(why)


def _mean(own: Sequence[Evaluated], values: Sequence[float | None], digits: int) -> Value:
    """Return the mean over replicates with its standard deviation."""
    some = [value for value in values if value is not None]
    if not some:
        return missing(next((one.missing for one in own if one.missing), "no score"))
    mean = sum(some) / len(some)
    text = f"{mean:.{digits}f}"
    if len(some) > 1:
        spread = (sum((value - mean) ** 2 for value in some) / (len(some) - 1)) ** 0.5
        text = f"{text} ± {spread:.{digits}f}"
    return Value(text, mean, runs=tuple(dict.fromkeys(run for one in own for run in one.runs)))


def _best(values: Any) -> Value:
    some = [value for value in values if value.number is not None]
    return max(some, key=lambda value: value.number) if some else nothing("not scored")


def _failures(suite: SuiteFact, found: Sequence[Evaluated]) -> dict[str, str]:
    """Return the tasks that some model has no score on, and the first reason."""
    names = {task["name"] for task in suite.tasks}
    reasons: dict[str, str] = {}
    for one in found:
        for name, why in one.left_out.items():
            if name in names:
                reasons.setdefault(name, f"{one.name}: {why}")
    return reasons


def _lacking(suite: SuiteFact) -> list[tuple[str, str]]:
    return list(suite.lacking.items())


def _named(table: Table, suite: SuiteFact, setting: str, several: bool) -> Table:
    """Return a table whose label and title tell it from those of other suites and settings."""
    parts = [suite.name] if several else []
    parts += [setting] if setting else []
    if not parts:
        return table
    return replace(
        table,
        label="-".join([table.label, *parts]),
        title=f"{table.title} ({', '.join(parts)})",
    )
