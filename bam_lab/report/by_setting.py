"""The result under each setting: one block of tables a setting, and one table over all of them.

A block compares the arms of a setting with that setting's baseline. Without settings there is one
block, and it is the whole result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bam_lab.report import figures
from bam_lab.report.blocks import AVERAGE
from bam_lab.report.evidence import Evidence
from bam_lab.report.grids import grid_tables
from bam_lab.report.settings import views
from bam_lab.report.table import Column, Row, Table, Value, nothing, told
from bam_lab.report.tables import absolute_table, effects_table, noise_table
from bam_lab.report.text import alone_table
from bam_lab.spec.published import Tables


@dataclass(frozen=True)
class Block:
    """Hold the result under one setting.

    Attributes:
        setting: its name; empty where there is one only.
        changes: what it changes, as dotted overrides.
        grids: crosses of two axes.
        figure: SVG; empty where there is nothing to draw.
    """

    setting: str
    changes: tuple[str, ...]
    effects: Table
    grids: tuple[Table, ...]
    absolute: Table
    alone: Table | None
    noise: Table | None
    figure: str

    @property
    def main(self) -> tuple[Table, ...]:
        """Return the tables that a paper would print."""
        return (self.effects, *self.grids, self.absolute, *([self.alone] if self.alone else []))

    @property
    def tables(self) -> tuple[Table, ...]:
        """Return all the block's tables in their order."""
        return (*self.main, *([self.noise] if self.noise else []))


@dataclass(frozen=True)
class Result:
    """Hold the whole result.

    Attributes:
        over_settings: the table over all settings; None where there is one only.
    """

    over_settings: Table | None
    blocks: tuple[Block, ...]

    @property
    def first(self) -> Table:
        """Return the table to show where there is room for one."""
        return self.over_settings or self.blocks[0].effects

    @property
    def main(self) -> tuple[Table, ...]:
        """Return the tables that a paper would print."""
        first = (self.over_settings,) if self.over_settings else ()
        return (*first, *(table for block in self.blocks for table in block.main))

    @property
    def tables(self) -> tuple[Table, ...]:
        """Return all tables in their order."""
        first = (self.over_settings,) if self.over_settings else ()
        return (*first, *(table for block in self.blocks for table in block.tables))


def result_of(evidence: Evidence, published: Tables, drawn: bool) -> Result:
    """Return the result; figures only where they can be `drawn`."""
    blocks = blocks_of(evidence, published, drawn)
    return Result(by_setting_table(evidence, blocks), blocks)


def blocks_of(evidence: Evidence, published: Tables, drawn: bool) -> tuple[Block, ...]:
    """Return the block of each setting."""
    changes = {setting.name: setting.changes for setting in evidence.settings}
    return tuple(
        _block(view, published, drawn, name, changes.get(name, {}))
        for name, view in views(evidence)
    )


def _block(
    view: Evidence, published: Tables, drawn: bool, setting: str, changes: Mapping[str, Any]
) -> Block:
    effects = effects_table(view, published)
    return Block(
        setting=setting,
        changes=tuple(f"{path} = {value}" for path, value in changes.items()),
        effects=effects,
        grids=grid_tables(view, effects),
        absolute=absolute_table(view, published),
        alone=alone_table(view),
        noise=noise_table(view),
        figure=figures.effects_figure(view, published) if drawn else "",
    )


def by_setting_table(evidence: Evidence, blocks: Sequence[Block]) -> Table | None:
    """Return the average change of every arm under every setting; None without settings."""
    if not evidence.settings:
        return None
    columns: list[Column] = []
    found: dict[str, dict[str, list[Value]]] = {}
    for block in blocks:
        table = block.effects
        kept = [i for i, column in enumerate(table.columns) if column.group == AVERAGE]
        columns += [replace(table.columns[i], group=block.setting) for i in kept]
        for row in table.rows:
            values = [told(row, row.values[i]) for i in kept]
            found.setdefault(row.head, {})[block.setting] = values
    width = len(columns) // len(blocks)
    absent = [nothing("no such arm under this setting")] * width
    rows = [
        Row(
            head,
            tuple(value for block in blocks for value in own.get(block.setting, absent)),
            "baseline" if head == evidence.baseline else "",
        )
        for head, own in found.items()
    ]
    columns, rows = _paper_once(columns, rows)
    return Table(
        label="by-setting",
        title=f"Change in test perplexity against {evidence.baseline}, average over domains, %",
        caption=f"Against the baseline of each setting. {blocks[0].effects.caption}",
        corner="arm",
        columns=tuple(columns),
        rows=tuple(rows),
    )


def _paper_once(columns: list[Column], rows: list[Row]) -> tuple[list[Column], list[Row]]:
    """Return the table with one column of the paper, where all settings have the same."""
    paper = [i for i, column in enumerate(columns) if column.dim]
    different = any(row.values[i].text != row.values[paper[0]].text for row in rows for i in paper)
    if not paper or different:
        return columns, rows
    kept = [i for i in range(len(columns)) if i not in paper]
    printed = replace(columns[paper[0]], group="printed")
    return [*(columns[i] for i in kept), printed], [
        replace(row, values=(*(row.values[i] for i in kept), row.values[paper[0]])) for row in rows
    ]
