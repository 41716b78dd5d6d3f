"""Check the printed tables that an ablation names: they are there, and have its shape.

A table has the shape of an ablation if it prints some of its arms in a measure that the report
shows. It may print more (dense models, models of others), and less (arms of our own).
"""

from collections.abc import Iterator
from pathlib import Path

from bam_lab import resources
from bam_lab.spec.ablation import AblationSpec
from bam_lab.spec.messages import Loc, nearest
from bam_lab.spec.published import PublishedTable
from bam_lab.spec.reader import Document, load, validate


def known_published() -> frozenset[str]:
    """Return the names of the published tables."""
    return frozenset(path.stem for path in resources.folder("published").glob("*.yaml"))


def published_problems(document: Document, spec: AblationSpec, scale: str) -> Iterator[str]:
    """Check every table that an ablation names, and the shape of those that stand at a scale.

    At other scales `at:` may give it other arms.
    """
    report, here = spec.report, scale in spec.report.published_at
    yield from _named(document, spec, ("report", "published"), report.published, not here)
    scales = {path.stem for path in (resources.folder("configs") / "scale").glob("*.yaml")}
    for name, tables in report.published_at.items():
        loc = ("report", "published_at", name)
        if name not in scales:
            yield document.problem(
                loc, f"must be a file of configs/scale, got {name!r}. {nearest(name, scales)}"
            )
        if not tables:
            text = "must name a table: without one `published` holds there too. Remove it."
            yield document.problem(loc, text)
        yield from _named(document, spec, loc, tables, name == scale)


def _named(
    document: Document, spec: AblationSpec, loc: Loc, names: tuple[str, ...], shaped: bool
) -> Iterator[str]:
    for index, name in enumerate(names):
        if name not in known_published():
            yield document.problem(
                loc,
                f"must name a file of reports/published, got {name!r}. "
                f"{nearest(name, known_published())}",
            )
        elif name in names[:index]:
            yield document.problem(loc, f"must name {name} once. Remove one of the two.")
        elif shaped and (table := read_table(name)) is not None:
            for text in misfits(spec, table):
                yield document.problem(loc, f"must name tables of this ablation's shape: {text}")


def read_table(name: str) -> PublishedTable | None:
    """Return a table; None where it is not whole, which `check` says of its own file."""
    path: Path = resources.folder("published") / f"{name}.yaml"
    return validate(load(path), PublishedTable)[0]


def meaning(path: Path) -> str:
    """Return an ablation's id and what each version of the paper calls its first table.

    For an alias that several have: `bam-active-parameters (Table 5 in v2, Table 6 in submission)`.
    """
    report = load(path).data.get("report") or {}
    named = report.get("published") or ""
    name = named if isinstance(named, str) else str(named[0])
    table = read_table(name) if name in known_published() else None
    if table is None:
        return path.stem
    numbers = {table.version: table.place, **table.numbers}
    return f"{path.stem} ({', '.join(f'{place} in {v}' for v, place in numbers.items())})"


def misfits(spec: AblationSpec, table: PublishedTable) -> Iterator[str]:
    """Say where a table has another shape than the ablation's arms and columns."""
    if table.scope != "language":
        yield f"{table.id} is of {table.scope} models, which no ablation trains. Remove it."
        return
    rows = list(dict.fromkeys(row.arm for row in table.rows))
    if not any(row in spec.arms for row in rows):
        yield (
            f"{table.id} has a row of none of the arms (its rows: {', '.join(rows)}; arms: "
            f"{', '.join(spec.arms)}). Name another table, or call an arm as its row."
        )
    shown = {column.rpartition("/")[2] for column in spec.report.columns}
    metrics = list(dict.fromkeys(column.metric for column in table.columns.values()))
    if not shown & set(metrics):
        yield (
            f"{table.id} prints {', '.join(metrics)}, and report.columns has "
            f"{', '.join(spec.report.columns)}. Add a column `measure/NAME`, or remove the table."
        )
