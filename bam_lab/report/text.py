"""What the models read, as tables: sources, repeats, contamination, differences, order.

And how every model does on text that is held out from all.

Results of an older version lack some of it: then there is no such table.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bam_lab.report.blocks import arm_cells, dense_experts
from bam_lab.report.evidence import Cell, Evidence
from bam_lab.report.ledger import training_stages
from bam_lab.report.scope import number
from bam_lab.report.settings import shown
from bam_lab.report.standing import general_of
from bam_lab.report.table import Column, Row, Table, Value, hoist, missing, nothing
from bam_lab.report.tables import arms_in_order, labelled, under

SPLITS = ("train", "valid", "test")
HELD_OUT = SPLITS[1:]


def corpus_table(evidence: Evidence) -> Table | None:
    """Return what the text is made of; None before the corpus is built."""
    rows = [
        Row(source, _source(name, facts), note=_failure(source, facts))
        for name, record in _domains(evidence).items()
        for source, facts in record["sources"].items()
    ]
    if not rows:
        return None
    return Table(
        label="corpus",
        title="Text",
        caption=(
            f"Corpus {evidence.corpus['digest'][:16]}. MB: million bytes of UTF-8, after cleaning. "
            "Dropped: documents that cleaning took out (hover for the reasons)."
        ),
        corner="source",
        columns=(
            Column("domain", align="left"),
            Column("package", align="left"),
            *(Column(f"{split} MB") for split in SPLITS),
            Column("documents"),
            Column("dropped"),
            Column("licence", align="left"),
        ),
        rows=tuple(hoist(row) for row in rows),
    )


def _source(domain: str, facts: Mapping[str, Any]) -> tuple[Value, ...]:
    splits, dropped = facts["splits"], facts.get("dropped") or {}
    documents, gone = sum(s["documents"] for s in splits.values()), sum(dropped.values())
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
    sizes = [splits[split]["bytes"] / 1e6 for split in SPLITS]
    return (
        Value(domain),
        Value(facts.get("package") or "local files"),
        *(Value(f"{size:.{2 if size >= 0.1 or not size else 3}f}", size) for size in sizes),
        Value(f"{documents:,}", float(documents)),
        Value(f"{gone:,}", float(gone), title=reasons),
        Value(str(facts["licence"])),
    )


def _failure(source: str, facts: Mapping[str, Any]) -> str:
    if facts.get("failure"):
        return f"{source}: {facts['failure']}"
    tally = facts.get("tally") or {}
    if tally.get("broken"):
        return f"{source}: {tally['broken']:,} of {tally['entries']:,} entries were broken."
    return ""


def contamination_table(evidence: Evidence) -> Table | None:
    """Return how much of what is held out stands in training text too."""
    rows = []
    for name, record in _domains(evidence).items():
        found = record.get("contamination") or {}
        if found:
            values = [value for split in HELD_OUT for value in _hits(found.get(split))]
            moved = int(record["moved"])
            rows.append(Row(name, (*values, Value(f"{moved:,}", float(moved)))))
    if not rows:
        return None
    columns = [
        Column(of, split) for split in HELD_OUT for of in ("documents", "hit", "13-grams hit, %")
    ]
    return Table(
        label="contamination",
        title="Contamination of what is held out",
        caption=(
            "A held-out document is hit if a run of 13 of its words stands in training text of any "
            "domain; the share is of all distinct runs. Exact, not sampled. Moved: held-out "
            "documents that overlapped training too much and were moved there before, or dropped."
        ),
        corner="domain",
        columns=(*columns, Column("moved")),
        rows=tuple(rows),
    )


def _hits(found: Mapping[str, int] | None) -> list[Value]:
    if not found or not found["documents"]:
        return [nothing("nothing is held out here")] * 3
    share = 100 * found["ngrams_hit"] / max(found["ngrams"], 1)
    counts = [found["documents"], found["documents_hit"]]
    return [*(Value(f"{n:,}", float(n)) for n in counts), Value(f"{share:.2f}", share)]


def items_table(evidence: Evidence) -> Table | None:
    """Return how many evaluation items share a run of 13 words with training text."""
    items: Mapping[str, Any] = evidence.corpus.get("evaluation") or {}
    names = list(_domains(evidence))
    rows = []
    for source, facts in items.items():
        failure = str(facts.get("failure") or "")
        hits = [facts["hits"].get(name) for name in names]
        values = [missing(failure) if failure else _count(facts["items"])]
        values += [nothing("not compared") if hit is None else _count(hit) for hit in hits]
        rows.append(hoist(Row(source, (*values, Value(str(facts["licence"]))))))
    if not rows:
        return None
    return Table(
        label="evaluation_items",
        title="Evaluation items in training text",
        caption="Items of which a run of 13 words stands in the domain's training text. Exact.",
        corner="source",
        columns=(
            Column("items"),
            *(Column(name, "found in") for name in names),
            Column("licence", align="left"),
        ),
        rows=tuple(rows),
    )


def _count(value: int) -> Value:
    return Value(f"{value:,}", float(value))


def crossed_table(evidence: Evidence) -> Table | None:
    """Return the matrix of byte n-grams: whether the domains differ at all."""
    bits: Mapping[str, Mapping[str, float]] = evidence.crossed.get("bits_per_byte", {})
    mixed: Mapping[str, float] = evidence.crossed.get("equal_mix", {})
    tested = [name for name in _domains(evidence) if name in mixed]
    if len(tested) < 2:
        return None
    rows = [
        Row(name, tuple(_bits(bits, name, other) for other in tested))
        for name in _domains(evidence)
        if name in bits
    ]
    rows.append(Row("equal mix", tuple(Value(f"{mixed[n]:.2f}", mixed[n]) for n in tested)))
    return Table(
        label="crossed",
        title="How different the domains are",
        caption=(
            f"Bits per byte of a byte {evidence.crossed['order']}-gram (Witten-Bell), row trained, "
            "column tested; in brackets its perplexity per byte over that of the domain's own. "
            f"Each read {evidence.crossed['train_bytes'] / 1e6:.2f} MB of training text, the equal "
            "mix as much of all together."
        ),
        corner="trained on",
        columns=tuple(Column(name, "tested on") for name in tested),
        rows=tuple(rows),
    )


def _bits(bits: Mapping[str, Mapping[str, float]], row: str, column: str) -> Value:
    found = bits[row][column]
    own = bits.get(column, {}).get(column)
    ratio = "" if own is None or row == column else f" ({2 ** (found - own):.1f})"
    return Value(f"{found:.2f}{ratio}", found, home=row == column)


def order_table(evidence: Evidence) -> Table | None:
    """Return how alike neighbouring documents are, where a phase reads them in such an order."""
    rows = []
    for order in evidence.orders:
        for domain, facts in order.domains.items():
            alike, random = float(facts["similarity"]), float(facts["similarity_random"])
            values = (
                Value(order.label),
                _count(int(facts["documents"])),
                Value(f"{alike:.3f}", alike, runs=(order.key,)),
                Value(f"{random:.3f}", random, runs=(order.key,)),
                _count(int(facts.get("restarts", 0))),
            )
            rows.append(Row(domain, values))
    if not rows:
        return None
    return Table(
        label="order",
        title="Order of documents",
        caption="Mean cosine of each training document with the next one, in this order and in the "
        "random one. Restarts: how often the chain had no unvisited neighbour to go on to.",
        corner="domain",
        columns=(
            Column("order", align="left"),
            Column("documents"),
            Column("similarity"),
            Column("in random order"),
            Column("restarts"),
        ),
        rows=tuple(rows),
    )


def repeats_table(evidence: Evidence) -> Table | None:
    """Return how often each source was read by each training stage."""
    stages = {
        name: next((stage for stage in found if stage.ledger.get("sources")), None)
        for name, found in training_stages(evidence).items()
    }
    read = {name: stage for name, stage in stages.items() if stage is not None}
    known = [source for record in _domains(evidence).values() for source in record["sources"]]
    met = {source for stage in read.values() for source in stage.ledger["sources"]}
    sources = [source for source in known if source in met]
    if not sources:
        return None
    rows = []
    for source in sources:
        values = []
        for stage in read.values():
            found = stage.ledger["sources"].get(source)
            if not found:
                values.append(nothing("not read"))
                continue
            repeated = number(found["repeated_tokens"])
            title = f"{number(found['tokens'])} tokens, {repeated} of them repeated"
            epochs = float(found["epochs"])
            values.append(Value(f"{epochs:.2f}", epochs, runs=(stage.key,), title=title))
        rows.append(Row(source, tuple(values)))
    return Table(
        label="repeats",
        title="Epochs of each source",
        caption="How often a stage read a source's training text, or the part that it draws from; "
        "of stages that replicates redo, the first.",
        corner="source",
        columns=tuple(Column(name) for name in read),
        rows=tuple(rows),
    )


def alone_table(evidence: Evidence) -> Table | None:
    """Return every model's scores on text that is held out as a whole, apart from all others."""
    if not evidence.held_out_only:
        return None
    models: list[tuple[str, Sequence[Cell]]] = []
    for name in ("seed_model", *dense_experts(evidence)):
        role = "seed_model" if name == "seed_model" else "expert"
        title = "seed model" if name == "seed_model" else f"{name} expert"
        models.append((title, [c for c in evidence.cells if (c.role, c.name) == (role, name)]))
    for arm in arms_in_order(evidence):
        models.append(
            (shown(arm), [c for d in evidence.held_out_only for c in arm_cells(evidence, arm, d)])
        )
    rows, columns = [], []
    for domain in evidence.held_out_only:
        columns += [Column("ppl", domain), Column("bits/byte", domain)]
    for title, cells in models:
        values = [value for d in evidence.held_out_only for value in _scores(cells, d)]
        mark = "baseline" if title == shown(evidence.baseline) else ""
        rows.append(hoist(Row(title, tuple(values), mark)))  # type: ignore[arg-type]
    domains = _domains(evidence)
    told = "; ".join(
        f"{name}: {domains[name]['title']}" if name in domains else name
        for name in evidence.held_out_only
    )
    return Table(
        label=labelled("alone", evidence),
        title=f"Held out from every model: {', '.join(evidence.held_out_only)}{under(evidence)}",
        caption=f"Test perplexity and bits per byte of text that nothing was trained on ({told}). "
        "It is part of no average, no ranking and no claim.",
        corner="model",
        columns=tuple(columns),
        rows=tuple(rows),
    )


def _scores(cells: Sequence[Cell], domain: str) -> list[Value]:
    own = [cell for cell in cells if cell.domain == domain]
    found = [cell for cell in own if cell.nll is not None]
    if not found:
        return [missing(next((cell.missing for cell in own), "not part of this run"))] * 2
    runs = tuple(dict.fromkeys(run for cell in found for run in cell.runs))
    perplexities = [math.exp(cell.nll) for cell in found if cell.nll is not None]
    bits = [cell.bits_per_byte for cell in found if cell.bits_per_byte is not None]
    means = [math.fsum(n) / len(n) if n else math.nan for n in (perplexities, bits)]
    return [
        Value(f"{mean:.{digits}f}", mean, runs=runs)
        for mean, digits in zip(means, (2, 3), strict=True)
    ]


def stands_in(evidence: Evidence) -> str:
    """Return the sentence on what the general text is, and what it stands in for."""
    name, record = general_of(evidence)
    if not record:
        return "" if evidence.corpus else "The corpus is not built yet."
    sources = ", ".join(record["sources"])
    told = f"the domain “{name}” ({record['title']}), made of {sources}"
    if record.get("stands_in_for"):
        return f"In place of {record['stands_in_for']} stands {told}."
    return f"The general text is {told}."


def _domains(evidence: Evidence) -> dict[str, Any]:
    """Return the domains' records in the order of the report's columns, others last."""
    found: Mapping[str, Any] = evidence.corpus.get("domains", {})
    order = [*evidence.domains, *evidence.held_out_only]
    names = sorted(found, key=lambda name: order.index(name) if name in order else len(order))
    return {name: found[name] for name in names}
