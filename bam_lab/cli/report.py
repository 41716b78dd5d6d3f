"""`bam-lab report`: render what the store holds of an ablation; nothing is run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from bam_lab.cli import options
from bam_lab.cli.domains import resolve
from bam_lab.cli.output import console, print_json
from bam_lab.errors import InputError
from bam_lab.record.store import Store, store_root

if TYPE_CHECKING:
    from bam_lab.report.render import Rendered
    from bam_lab.spec.resolved import ResolvedAblation

Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FOLDER", help="Where the report goes, instead of reports/ in the store."
    ),
]


def report(
    reference: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="Id, alias or file of an ablation, or a results.json of a report."
        ),
    ],
    scale: options.Scale = None,
    overrides: options.Overrides = None,
    domains: options.Domains = None,
    store: options.StorePath = None,
    out: Out = None,
    json: options.Json = False,
) -> None:
    """Write the HTML, LaTeX and CSV report; what is missing stands as missing."""
    if reference.endswith(".json"):
        if scale or overrides or domains or store:
            raise InputError(
                f"{reference} must be given without --scale, --set, --domain and --store: a "
                "results.json holds all that its report is made of. Leave them out."
            )
        rendered = _from_results(Path(reference), out)
    else:
        root = store_root(store)
        rendered = _from_store(resolve(reference, scale, overrides, domains, root), root, out)
    if json:
        print_json(rendered.summary)
    else:
        show(rendered, console())


def show(rendered: "Rendered", out: Console) -> None:
    """Print the main table and where the report is."""
    out.print(rendered.terminal_table)
    out.print(f"Report: {rendered.paths['report.html']}", soft_wrap=True, markup=False)
    others = ", ".join(name for name in rendered.paths if name != "report.html")
    out.print(f"Beside it: {others}.", style="dim")


def _from_results(results: Path, out: Path | None) -> "Rendered":
    from bam_lab.report.render import render_results

    return render_results(results, out or results.parent)


def _from_store(resolved: "ResolvedAblation", store: Path, out: Path | None) -> "Rendered":
    from bam_lab.report.render import render
    from bam_lab.run.index import NAME, index_key

    index = store / "ablations" / index_key(resolved) / NAME
    if index.is_file():
        _follow(resolved, Store(store))
    return render(store, index, out)


def _follow(resolved: "ResolvedAblation", store: Store) -> None:
    """Bring the index up to what the file asks now; say so where it asks for other runs."""
    from bam_lab.run.index import asks_anew, read_index, refresh_index
    from bam_lab.run.reproduce import current_graph

    if asks_anew(resolved, old := read_index(resolved, store)) and not refresh_index(
        resolved, current_graph(resolved, store, old["replicates"]), store
    ):
        Console(stderr=True).print(
            f"{resolved.path} asks for other runs than those in the store: this is the report of "
            "the last run. `bam-lab reproduce` makes what is missing.",
            soft_wrap=True,
            markup=False,
        )
