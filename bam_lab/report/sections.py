"""The supporting tables: specialisation, auxiliary losses and routing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bam_lab.report.blocks import arm_cells, dense_blocks, dense_experts, diagonal
from bam_lab.report.evidence import Cell, Evidence
from bam_lab.report.leaves import Leaf, decide, nats, partial
from bam_lab.report.scope import signed
from bam_lab.report.settings import dense_groups
from bam_lab.report.stats import Blocks
from bam_lab.report.table import Column, Row, Table, Value, hoist, missing, nothing
from bam_lab.report.tables import arms_in_order, mark_of
from bam_lab.spec.branches import home_of
from bam_lab.spec.published import PublishedTable, Tables

_KNOWN = {"step", "tokens", "lr", "loss", "loss_max", "tokens_per_s"}
_KNOWN |= {"grad_norm", "grad_norm_mean", "grad_norm_max"}


@dataclass(frozen=True)
class Specialisation:
    """Hold how the dense models of some settings do, as a table and as sentences."""

    table: Table
    lines: tuple[str, ...]


def specialisations(evidence: Evidence, published: Tables) -> tuple[Specialisation, ...]:
    """Return the specialisation of the dense models, once for each set of them."""
    found = []
    for names, view in dense_groups(evidence):
        table = specialisation_table(view, published)
        if names:
            table = replace(
                table,
                label=f"{table.label}-{names[0]}",
                title=f"{table.title}, under {', '.join(names)}",
            )
        lines = (*diagonal_lines(view), *oracle_lines(view))
        found.append(Specialisation(table, lines))
    return tuple(found)


def specialisation_table(evidence: Evidence, published: Tables) -> Table:
    """Return the perplexity of every dense model on every domain, the home cells marked.

    The paper's stands beside ours where the ablation's printed table has its dense models.
    """
    names = ["seed_model", *dense_experts(evidence)]
    general = evidence.general or evidence.domains[0]  # results from before the field was written
    printed = next((table for table in published if _has_dense_models(evidence, table)), None)
    columns = []
    for domain in evidence.domains:
        columns.append(Column("ours" if printed else domain, domain if printed else ""))
        if printed:
            columns.append(Column("paper", domain, dim=True))
    rows = []
    for name in names:
        role = "seed_model" if name == "seed_model" else "expert"
        cells = [c for c in evidence.cells if (c.role, c.name) == (role, name)]
        home = general if name == "seed_model" else home_of(name)
        values = []
        for domain in evidence.domains:
            values.append(perplexity_value(cells, domain, home=domain == home))
            if printed:
                arm = "seed-model" if name == "seed_model" else f"{name}-expert"
                value = printed.value(arm, "any", domain, "perplexity")
                shown = nothing("not printed") if value is None else None
                values.append(shown or Value(f"{value:.2f}", value, dim=True))
        branch, space, reads = name.partition(" ")
        title = "seed model" if name == "seed_model" else f"{branch} expert{space}{reads}"
        rows.append(hoist(Row(title, tuple(values))))
    if len(rows) > 1:
        rows.append(_oracle(rows, columns))
    share = evidence.recipe["expert"]["general_share"]
    spread = "" if evidence.replicates == 1 else ", mean ± standard deviation over replicates"
    return Table(
        label="specialisation",
        title="Specialisation of the dense models",
        caption=(
            f"Test perplexity{spread}. Each expert's data mix has {share:.0%} general text, where "
            "its name does not say another share. "
            "Shaded: a model's own domain (the seed model's is the general one)."
        ),
        corner="model",
        columns=tuple(columns),
        rows=tuple(rows),
    )


def _oracle(rows: Sequence[Row], columns: Sequence[Column]) -> Row:
    """Return the least of every column: what knowing the domain, and its model, would give."""
    values = []
    for place, column in enumerate(columns):
        some = [row.values[place] for row in rows if row.values[place].number is not None]
        least = min(some, key=lambda value: value.number or math.inf, default=None)
        values.append(
            nothing("not printed" if column.dim else "not measured")
            if least is None
            else replace(least, home=False, title="the best of the dense models")
        )
    return Row("best of them", tuple(values), "external")


def oracle_lines(evidence: Evidence) -> list[str]:
    """Return one sentence an arm: its perplexity against the best dense model of each domain."""
    if not dense_experts(evidence):
        return []
    best = {
        d: min(_means(dense_blocks(evidence, d)).values(), default=None) for d in evidence.domains
    }
    lines = []
    for arm in arms_in_order(evidence):
        changes = {}
        for domain, least in best.items():
            own = [c.nll for c in arm_cells(evidence, arm, domain) if c.nll is not None]
            if own and least is not None:
                changes[domain] = 100 * (math.exp(math.fsum(own) / len(own) - least) - 1)
        if changes:
            each = ", ".join(f"{d} {signed(change, 1)}%" for d, change in changes.items())
            lines.append(f"{arm} against the best dense model of each domain: {each}")
    return lines


def _means(blocks: Blocks) -> dict[str, float]:
    """Return each model's mean over replicates."""
    found: dict[str, list[float]] = {}
    for (name, _), value in blocks.items():
        found.setdefault(name, []).append(value)
    return {name: math.fsum(values) / len(values) for name, values in found.items()}


def _has_dense_models(evidence: Evidence, table: PublishedTable) -> bool:
    shared = any(table.key(domain, "perplexity") for domain in evidence.domains)
    return shared and table.row("seed-model", "any") is not None


def diagonal_lines(evidence: Evidence) -> list[str]:
    """Return one sentence an expert: is it the best dense model at home, and by how much."""
    delta = nats(evidence.delta)
    names = {"seed_model": "the seed model"}
    names |= {name: f"the {name} expert" for name in dense_experts(evidence)}
    lines = []
    for domain, compared in diagonal(evidence).items():
        found = {other: gap for other, gap in compared.items() if gap is not None}
        if len(found) < len(compared):
            lines.append(f"{domain} expert: not measured")
            continue
        leaves = {other: Leaf(other, domain, "better", gap) for other, gap in found.items()}
        nearest = max(found, key=lambda other: found[other].mean)
        size = f"{leaves[nearest].size()} of perplexity against the next best, {names[nearest]}"
        if not found[nearest].judged:
            place = "lowest" if found[nearest].mean < 0 else "not the lowest"
            lines.append(f"{domain} expert on {domain}: {place} ({size}); not judged (1 replicate)")
            continue
        verdict = decide(partial([leaf.ps(delta) for leaf in leaves.values()], len(leaves)))
        lines.append(f"{domain} expert on {domain}, best of all dense models: {verdict} ({size})")
    return lines


def routing_table(evidence: Evidence) -> Table | None:
    """Return auxiliary losses and router measurements late in the mixture phase, if logged."""
    curves = [c for c in evidence.curves if c.name == "mixture"]
    keys = sorted({key for curve in curves for key in curve.final} - _KNOWN)
    if not keys:
        return None
    rows = []
    for arm in arms_in_order(evidence):
        last = {curve.replicate: curve for curve in curves if curve.arm == arm}
        own = list(last.values())
        values = []
        for key in keys:
            found = [curve.final[key] for curve in own if key in curve.final]
            runs = tuple(curve.key for curve in own)
            mean = math.fsum(found) / len(found) if found else math.nan
            values.append(
                Value(f"{mean:.4g}", mean, runs=runs) if found else nothing("no such part")
            )
        rows.append(Row(arm, tuple(values), mark_of(evidence, arm)))
    return Table(
        label="routing",
        title="Auxiliary losses and routing",
        caption=(
            "Mean over the last tenth of the logged steps, and over replicates; losses unweighted, "
            "summed over layers."
        ),
        corner="arm",
        columns=tuple(Column(key.replace("_", " ")) for key in keys),
        rows=tuple(hoist(row) for row in rows),
    )


def perplexity_value(cells: Sequence[Cell], domain: str, home: bool = False) -> Value:
    """Return a mean perplexity with its standard deviation over replicates."""
    own = [cell for cell in cells if cell.domain == domain]
    found = [math.exp(cell.nll) for cell in own if cell.nll is not None]
    if not found:
        return missing(next((cell.missing for cell in own), "not part of this run"))
    runs = tuple(dict.fromkeys(run for cell in own for run in cell.runs))
    mean = math.fsum(found) / len(found)
    text = f"{mean:.2f}"
    if len(found) > 1:
        spread = math.sqrt(math.fsum((n - mean) ** 2 for n in found) / (len(found) - 1))
        text = f"{mean:.2f} ± {spread:.2f}"
    return Value(text, mean, home=home, runs=runs)
