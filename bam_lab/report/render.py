"""Write a report: one HTML page, LaTeX and CSV tables, and the evidence that renders them again.

    report.html    self-contained: no request leaves it
    table.tex      the main tables, booktabs only
    table.csv      every cell of every table, tidy
    results.json   the evidence (`evidence.py`), from which all of this can be rendered
    verdicts.json  the claims' verdicts and the effects behind them, for programs

Same evidence, same bytes.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table as RichTable

from bam_lab import resources
from bam_lab.errors import InputError
from bam_lab.record.files import make_folder, write_text
from bam_lab.report import drawing
from bam_lab.report.assumptions import register
from bam_lab.report.axes_figure import axis_figures
from bam_lab.report.budgets import budgets_table
from bam_lab.report.by_setting import Result, result_of
from bam_lab.report.claims import Judgement, judge
from bam_lab.report.collect import collect
from bam_lab.report.curves import curves_figure, has_curves
from bam_lab.report.evaluations import sections_of
from bam_lab.report.evidence import Evidence, read_results
from bam_lab.report.external import external_table
from bam_lab.report.leaves import nats
from bam_lab.report.ledger import ledger_table, match_table
from bam_lab.report.measures_table import measures_table
from bam_lab.report.page import page_parts
from bam_lab.report.pages import for_latex
from bam_lab.report.paths import lineage_table
from bam_lab.report.printed import whole_table
from bam_lab.report.provenance import experts_table, moved_table
from bam_lab.report.sections import routing_table, specialisations
from bam_lab.report.stability_table import stability_table
from bam_lab.report.step0 import (
    batch_loss_table,
    receipts_table,
    routing_at_step0_table,
    step0_table,
)
from bam_lab.report.table import Table, to_csv, to_rich
from bam_lab.report.templates import render_html, render_tex
from bam_lab.report.text import (
    contamination_table,
    corpus_table,
    crossed_table,
    items_table,
    order_table,
    repeats_table,
)
from bam_lab.spec.claims import Claim, ClaimsFile
from bam_lab.spec.published import PublishedTable, Tables
from bam_lab.spec.reader import read

NAMES = ("report.html", "table.tex", "table.csv", "results.json", "verdicts.json")


@dataclass(frozen=True)
class Rendered:
    """Hold what was written.

    Attributes:
        paths: by name of `NAMES`.
        terminal_table: the main table for a terminal.
        summary: what `--json` prints: the verdicts and effects.
    """

    paths: dict[str, Path]
    terminal_table: RichTable
    summary: dict[str, Any]


def default_folder(store_root: Path, index_path: Path) -> Path:
    """Return where the report of an index goes, unless the user says otherwise."""
    return store_root / "reports" / index_path.parent.name


def render(store_root: Path, index_path: Path, out: Path | None = None) -> Rendered:
    """Report one ablation of a store; what is missing stands as missing, with its reason.

    Raises:
        InputError: no index, mixed numerics, or `out` cannot be written.
        SpecError: a claim or published table that the ablation names is not there.
    """
    return write(collect(store_root, index_path), out or default_folder(store_root, index_path))


def render_results(results: Path, out: Path) -> Rendered:
    """Report from a committed `results.json`, without the store.

    Raises:
        InputError: it cannot be read, or is not one.
    """
    return write(read_results(results), out)


def write(evidence: Evidence, out: Path) -> Rendered:
    """Compute everything from the evidence and write the files, each at once."""
    published = published_tables(evidence)
    judgements = judge(evidence, declared_claims(evidence))
    drawn = drawing.available()
    result = result_of(evidence, published, drawn)
    tables = _tables(evidence, published)
    asked = [
        table for table in (tables["budgets"], tables["measures"], tables["stability"]) if table
    ]
    specialised = specialisations(evidence, published)
    sections = sections_of(evidence)
    asked += [table for section in sections for table in section.main]
    every = [*result.tables, *(t for t in tables.values() if t), *(s.table for s in specialised)]
    every += [table for section in sections for table in section.tables]
    summary = _summary(evidence, judgements, result)
    texts = {
        "report.html": render_html(
            "report.html.j2",
            evidence=evidence,
            published=published,
            printed=[whole_table(table) for table in published],
            tables=tables,
            result=result,
            specialised=specialised,
            sections=sections,
            judgements=judgements,
            delta_nats=nats(evidence.delta),
            assumptions=register(evidence),
            axis_figures=axis_figures(evidence) if drawn else {},
            curves_figure=_curves(evidence, drawn),
            drawn=drawn,
            data=_script(evidence, summary),
            **page_parts(evidence, published),
        ),
        "table.tex": render_tex(
            "tables.tex.j2", tables=for_latex([*result.main, *asked]), evidence=evidence
        ),
        "table.csv": to_csv(every),
        "results.json": evidence.model_dump_json(indent=1) + "\n",
        "verdicts.json": json.dumps(summary, indent=1, ensure_ascii=False) + "\n",
    }
    make_folder(out)
    for name in NAMES:
        write_text(out / name, texts[name])
    return Rendered({name: out / name for name in NAMES}, to_rich(result.first), summary)


def _tables(evidence: Evidence, published: Tables) -> dict[str, Table | None]:
    """Return every table by its label, in the order of the CSV; None where there is nothing."""
    return {
        "budgets": budgets_table(evidence),
        "measures": measures_table(evidence, published),
        "match": match_table(evidence),
        "external": external_table(evidence),
        "lineage": lineage_table(evidence),
        "ledger": ledger_table(evidence),
        "step0": step0_table(evidence),
        "batch_loss": batch_loss_table(evidence),
        "receipts": receipts_table(evidence),
        "routing_step0": routing_at_step0_table(evidence),
        "experts": experts_table(evidence),
        "moved": moved_table(evidence),
        "routing": routing_table(evidence),
        "stability": stability_table(evidence),
        "corpus": corpus_table(evidence),
        "repeats": repeats_table(evidence),
        "contamination": contamination_table(evidence),
        "evaluation_items": items_table(evidence),
        "crossed": crossed_table(evidence),
        "order": order_table(evidence),
    }


def published_tables(evidence: Evidence) -> Tables:
    """Return the printed tables that the ablation names for the scale, in its order."""
    wanted = evidence.ablation["report"]
    names = wanted.get("published_at", {}).get(evidence.scale) or wanted["published"]
    names = [names] if isinstance(names, str) else names  # results from before several had one
    folder = resources.folder("published")
    return tuple(read(folder / f"{name}.yaml", PublishedTable) for name in names if name)


def declared_claims(evidence: Evidence) -> dict[str, Claim]:
    """Return the claims that the ablation declares, its own last.

    Raises:
        InputError: an id that the claims file lacks.
    """
    path = resources.folder("ablations") / "claims.yaml"
    known = read(path, ClaimsFile).claims
    declared = evidence.ablation["claims"]
    unknown = [name for name in declared if name not in known]
    if unknown:
        raise InputError(
            f"{path}: must hold the claims of {evidence.id}, lacks {', '.join(unknown)}. "
            f"It has {', '.join(known)}."
        )
    own = evidence.ablation.get("own_claims", {})  # results from before there were any
    return {name: known[name] for name in declared} | {
        name: Claim.model_validate_json(json.dumps(claim)) for name, claim in own.items()
    }


def _curves(evidence: Evidence, drawn: bool) -> str:
    return curves_figure(evidence) if drawn and has_curves(evidence) else ""


def _summary(
    evidence: Evidence, judgements: tuple[Judgement, ...], result: Result
) -> dict[str, Any]:
    return {
        "id": evidence.id,
        "scale": evidence.scale,
        "replicates": evidence.replicates,
        "overridden": bool(evidence.changes),
        "effects": [
            {
                "arm": row.head,
                **({"setting": block.setting} if block.setting else {}),
                "domain": column.group,
                "of": column.name,
                "percent": value.number,
                "text": value.text,
                "runs": value.runs,
                "missing": value.note if value.number is None else "",
            }
            for block in result.blocks
            for row in block.effects.rows
            for column, value in zip(block.effects.columns, row.values, strict=True)
        ],
        "claims": [
            {
                "id": judged.id,
                "claim": judged.claim.text,
                "verdict": judged.verdict,
                "qualifier": judged.qualifier,
                "p": judged.p,
                "details": judged.details,
                "scope": judged.scope,
                "printed_supports": judged.claim.printed.supports,
                "comparisons": [
                    {
                        "test": part.text,
                        "what": leaf.label,
                        "size": leaf.size(),
                        "verdict": leaf.verdict(nats(evidence.delta)),
                    }
                    for part in judged.parts
                    for leaf in part.leaves
                ],
            }
            for judged in judgements
        ],
    }


def _script(evidence: Evidence, summary: dict[str, Any]) -> str:
    """Return JSON that is safe inside a script element."""
    data = {"evidence": evidence.model_dump(mode="json"), "summary": summary}
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
