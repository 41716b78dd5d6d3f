"""Measures of source `evaluation`: from rows of tasks, probes, routing and latency to cells.

Places (`MeasureCell.domain`) stand in for domains: groups of tasks or tasks, `group@suite` where
several suites are asked; lengths of prompts in tokens, the shortest first.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bam_lab.report.evaluated import REROUTED
from bam_lab.report.evidence import Evaluated, Evidence, MeasureCell, SuiteFact
from bam_lab.report.stats import LEVEL, p_chance
from bam_lab.spec.measures import MeasureName

LEAST_ABOVE = 0.1
"""How far above guessing the dense model must find needles for needles to say anything."""
Row = Mapping[str, Any]


def evaluation_cells(evidence: Evidence) -> list[MeasureCell]:
    """Return the cells of every arm; one without a number says so at every place of the others."""
    cells = list(_cells(evidence))
    places: dict[str, dict[str, None]] = {}
    for cell in cells:
        if cell.domain:
            places.setdefault(cell.measure, {})[cell.domain] = None
    return [
        cell.model_copy(update={"domain": place})
        for cell in cells
        for place in ([cell.domain] if cell.domain else places.get(cell.measure, {"": None}))
    ]


def _cells(evidence: Evidence) -> Iterator[MeasureCell]:
    for found in evidence.evaluations:
        if found.role == "arm" and found.kind == "tasks" and not found.about:
            yield from _tasks(evidence.suites, found)
            yield from _rerouting(evidence, found)
        elif found.role == "arm" and found.kind == "routing":
            yield from _routing(found)
        elif found.role == "arm" and found.kind == "probe":
            yield from _probe(evidence, found)
        elif found.kind == "latency":
            yield from _latency(evidence, found)


def length_place(tokens: int) -> str:
    """Return the place of a length; places sort as lengths do where they are kept in order."""
    return f"{tokens}-tokens"


def task_rows(suite: SuiteFact, found: Evaluated) -> dict[str, Row]:
    """Return task -> the row of the metric that stands for it, of the tasks that have one."""
    by_key = {(r["task"], r["metric"], r["filter"]): r for r in found.rows}
    keys = {task["name"]: (task["name"], task["metric"], task["filter"]) for task in suite.tasks}
    return {name: by_key[key] for name, key in keys.items() if key in by_key}


def groups_of(suite: SuiteFact) -> dict[str, list[dict[str, Any]]]:
    """Return group -> its tasks that have an accuracy."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for task in suite.tasks:
        if task["chance"] is not None:
            groups.setdefault(task["group"], []).append(task)
    return groups


def group_accuracy(suite: SuiteFact, found: Evaluated, group: str) -> tuple[float | None, str]:
    """Return the mean accuracy of a group's tasks, or None and why there is none."""
    if found.missing:
        return None, found.missing
    rows = task_rows(suite, found)
    names = [task["name"] for task in groups_of(suite)[group]]
    for name in names:
        if name not in rows:
            return None, f"{name}: {found.left_out.get(name, 'no score')}"
    return math.fsum(rows[name]["value"] for name in names) / len(names), ""


def _tasks(suites: Sequence[SuiteFact], found: Evaluated) -> Iterator[MeasureCell]:
    tasks: dict[str, dict[str, Any]] = {}
    for suite in suites:
        at = f"@{suite.name}" if len(suites) > 1 else ""
        for group in groups_of(suite):
            value, why = group_accuracy(suite, found, group)
            yield _cell(found, "task_accuracy", value, why, group + at)
        tasks |= {task["name"]: task for group in groups_of(suite).values() for task in group}
    for suite in suites:
        for name, row in task_rows(suite, found).items():
            if task := tasks.pop(name, None):
                cell = _cell(found, "accuracy_by_task", row["value"], "", name)
                yield cell.model_copy(update={"items": row["n"], "chance": task["chance"]})
    for name in tasks:
        why = found.missing or found.left_out.get(name, "no score")
        yield _cell(found, "accuracy_by_task", None, why, name)


def _rerouting(evidence: Evidence, found: Evaluated) -> Iterator[MeasureCell]:
    """Yield what re-routing adds; 0 for arms whose two rules are one, none where nobody asked."""
    if not evidence.ablation.get("evaluate", {}).get("rerouted"):
        return
    again = [
        one
        for one in evidence.evaluations
        if one.about == REROUTED and (one.name, one.replicate) == (found.name, found.replicate)
    ]
    for suite in evidence.suites:
        at = f"@{suite.name}" if len(evidence.suites) > 1 else ""
        for group in groups_of(suite):
            first, why = group_accuracy(suite, found, group)
            second, other = group_accuracy(suite, again[0], group) if again else (first, why)
            known = first is not None and second is not None
            value = second - first if known else None  # type: ignore[operator]
            yield _cell(found, "rerouting_gain", value, why or other, group + at)


def _routing(found: Evaluated) -> Iterator[MeasureCell]:
    wanted = {"layer": "*", "expert": "*", "domain": "*", "metric": "mutual_information"}
    rows = [row for row in found.rows if _fits(row, wanted)]
    ffn = [row for row in rows if row["router"] == "ffn"] or rows
    value = ffn[0]["value"] if ffn else None
    why = found.missing or "no router that experts could be told by"
    yield _cell(found, "mutual_information", value, "" if ffn else why)


def _probe(evidence: Evidence, found: Evaluated) -> Iterator[MeasureCell]:
    if found.missing or not found.rows:
        why = found.missing or found.left_out.get(found.about, "no rows")
        for name in _OF_PROBE.get(found.about, ()):
            yield _cell(found, name, None, why)
        return
    match found.about:
        case "completion":
            own: list[Row] = [r for r in found.rows if _at_own_segments(r) and r["domain"] == "*"]
            prompts: list[Row] = [
                r for r in own if r["metric"] == "perplexity" and r["rule"] == "prompt"
            ]
            yield from _by_length(found, "completion_perplexity", prompts, "prompt_len")
            mismatches: list[Row] = [r for r in own if r["metric"] == "mismatch"]
            yield from _by_length(found, "prompt_mismatch", mismatches, "prompt_len")
        case "needles":
            why = blind(evidence)
            rows = needles(found)
            for length in dict.fromkeys(row["length"] for row in rows):
                own = [row for row in rows if row["length"] == length]
                value = math.fsum(row["value"] for row in own) / len(own)
                cell = _cell(
                    found, "needle_accuracy", None if why else value, why, length_place(length)
                )
                chance = math.fsum(row["chance"] for row in own) / len(own)
                items = sum(row["n"] for row in own)
                yield cell.model_copy(update={"items": items, "chance": chance})
        case "positions":
            wanted = {"metric": "gradient_norm", "domain": "*", "part": "first"}
            for row in found.rows:
                if _fits(row, wanted):
                    yield _cell(found, "position_gradient", row["value"])


_OF_PROBE: dict[str, tuple[MeasureName, ...]] = {
    "completion": ("completion_perplexity", "prompt_mismatch"),
    "needles": ("needle_accuracy",),
    "positions": ("position_gradient",),
}


def _by_length(
    found: Evaluated, name: MeasureName, rows: Sequence[Row], key: str
) -> Iterator[MeasureCell]:
    for row in sorted(rows, key=lambda row: int(row[key])):
        yield _cell(found, name, row["value"], "", length_place(row[key]))


def _at_own_segments(row: Row) -> bool:
    return bool(row.get("segment_len") == row.get("trained_segment_len"))


def needles(found: Evaluated) -> list[Row]:
    """Return the accuracies by likelihood over all depths, the shortest prompts first."""
    rows = [
        row
        for row in found.rows
        if row["metric"] == "accuracy" and "length" in row and "depth" not in row
    ]
    return sorted(rows, key=lambda row: int(row["length"]))


def blind(evidence: Evidence) -> str:
    """Say why needles tell nothing here: dense models, which see all, do not find them; else empty.

    Where no arm is dense, the baseline stands in. Asked of the shortest prompts, over replicates.
    """
    dense = [arm.name for arm in evidence.arms if arm.method["method"] == "dense"]
    names = dense or [evidence.baseline_of(arm.name) for arm in evidence.arms]
    own = [
        row
        for found in evidence.evaluations
        if (found.kind, found.about, found.role) == ("probe", "needles", "arm")
        and found.name in names
        for row in needles(found)
    ]
    if not own:
        return "the dense model's needles are not measured yet"
    shortest = [row for row in own if row["length"] == own[0]["length"]]
    items = sum(row["n"] for row in shortest)
    right = sum(round(row["value"] * row["n"]) for row in shortest)
    chance = math.fsum(row["chance"] * row["n"] for row in shortest) / items
    far = right / items - chance >= LEAST_ABOVE
    if far and p_chance(right, items, chance, "greater") < LEVEL:
        return ""
    return (
        f"the dense model itself finds {right / items:.0%} of the needles in the shortest prompts, "
        f"where guessing finds {chance:.0%}: too little to tell what routing loses"
    )


def _latency(evidence: Evidence, found: Evaluated) -> Iterator[MeasureCell]:
    """Yield each arm's seconds in every round: a round is what the arms are paired by."""
    names = [arm.name for arm in evidence.arms]
    if found.missing:
        return
    first = found.turns[0]["batch"] if found.turns else 0
    for turn in found.turns:
        if turn["batch"] == first and turn["computed"] == "apart" and turn["arm"] in names:
            for number, parts in enumerate(turn["seconds"]):
                yield MeasureCell(
                    arm=turn["arm"],
                    replicate=number,
                    measure="latency",
                    value=math.fsum(parts),
                    runs=found.runs,
                )


def _fits(row: Row, wanted: Mapping[str, Any]) -> bool:
    return all(row.get(key) == value for key, value in wanted.items())


def _cell(
    found: Evaluated, measure: MeasureName, value: float | None, missing: str = "", place: str = ""
) -> MeasureCell:
    return MeasureCell(
        arm=found.name,
        replicate=found.replicate,
        measure=measure,
        domain=place,
        value=value,
        runs=found.runs,
        missing=missing,
    )
