"""A cross of two axes as a grid: the average change of every arm, one axis down, one across."""

from collections.abc import Iterator
from typing import Any

from bam_lab.report.axes import CASE
from bam_lab.report.blocks import AVERAGE
from bam_lab.report.evidence import Arm, Evidence
from bam_lab.report.settings import shown
from bam_lab.report.table import Column, Row, Table, Value, nothing, told
from bam_lab.report.tables import labelled, under


def grid_tables(view: Evidence, effects: Table) -> tuple[Table, ...]:
    """Return a grid for every arm of the file that is a cross of two axes, from its effects."""
    column = next(i for i, c in enumerate(effects.columns) if c.group == AVERAGE)
    values = {row.head: told(row, row.values[column]) for row in effects.rows}
    families: dict[str, list[Arm]] = {}
    for arm in view.arms:
        families.setdefault(arm.base or arm.name, []).append(arm)
    return tuple(
        _grid(view, base, arms, axes, values)
        for base, arms in families.items()
        if len(axes := _own_axes(arms)) == 2 and CASE not in axes
    )


def _own_axes(arms: list[Arm]) -> dict[str, list[Any]]:
    """Return the axes along which some arms differ, with their values in the file's order."""
    found: dict[str, list[Any]] = {}
    for arm in arms:
        for axis, value in arm.axes.items():
            values = found.setdefault(axis, [])
            if value not in values:
                values.append(value)
    return {axis: values for axis, values in found.items() if len(values) > 1}


def _grid(
    view: Evidence, base: str, arms: list[Arm], axes: dict[str, list[Any]], cells: dict[str, Value]
) -> Table:
    down, across = axes
    place = {(arm.axes[down], arm.axes[across]): shown(arm.name) for arm in arms}

    def row(value: Any) -> Iterator[Value]:
        for other in axes[across]:
            arm = place.get((value, other))
            yield cells[arm] if arm else nothing("no such arm")

    return Table(
        label=labelled(f"grid-{base}", view),
        title=f"{base}: {down} by {across}{under(view)}",
        caption=(
            f"Change in test perplexity against {shown(view.baseline)}, average over domains, %; "
            f"the numbers of the table above. Down: {down}; across: {across}."
        ),
        corner=f"{down}, {across}",
        columns=tuple(Column(f"{other}") for other in axes[across]),
        rows=tuple(Row(f"{value}", tuple(row(value))) for value in axes[down]),
    )
