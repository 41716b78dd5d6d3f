"""`bam-lab export` and `bam-lab import`: small results travel, weights and text stay."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from bam_lab.cli import options
from bam_lab.cli.domains import resolve
from bam_lab.cli.output import console, print_json, size
from bam_lab.record.export import INDEX
from bam_lab.record.export import export as write
from bam_lab.record.files import intact, read_json
from bam_lab.record.imported import Imported, import_results
from bam_lab.record.store import Store, store_root


def export(
    reference: options.Reference,
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="The file to write.")],
    scale: options.Scale = None,
    overrides: options.Overrides = None,
    domains: options.Domains = None,
    store: options.StorePath = None,
    json: options.Json = False,
) -> None:
    """Write what is done of an ablation to one small file: scores, ledgers, metrics, receipts.

    No weights and no text are in it. `bam-lab import` reads it on another machine.
    """
    from bam_lab.run.index import index_key

    resolved = resolve(reference, scale, overrides, domains, store_root(store))
    done = write(Store(store_root(store)), index_key(resolved), to)
    if json:
        print_json({**vars(done), "path": str(done.path)})
        return
    out = console()
    count = "1 stage" if done.stages == 1 else f"{done.stages} stages"
    out.print(f"{done.path}: {count}, {size(done.bytes)}.", soft_wrap=True)
    if done.missing:
        verb = "stage is" if done.missing == 1 else "stages are"
        out.print(f"{done.missing} {verb} not done, so not in it.")
    out.print(f"SHA-256 {done.sha256}", soft_wrap=True)
    out.print(f"There: {shlex.join(['bam-lab', 'import', to.name])}", style="dim", soft_wrap=True)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `bam-lab export` wrote.")],
    sha256: Annotated[
        str,
        typer.Option("--sha256", metavar="DIGITS", help="What the file must have; export says it."),
    ] = "",
    store: options.StorePath = None,
    json: options.Json = False,
) -> None:
    """Take results that another machine exported: reports use them, runs trust them."""
    where = Store(store_root(store))
    found = import_results(where, file, sha256)
    if json:
        print_json(vars(found))
    else:
        _tell(found, where)


def _tell(found: Imported, store: Store) -> None:
    out = console()
    out.print(f"{len(found.stages)} stages of {found.ablation} came into {store.root}.")
    if found.kept:
        out.print(f"{len(found.kept)} were done here already and stay as they are.")
    for key in found.differing:
        out.print(f"{key}: its scores here differ from those of the file.", style="yellow")
    if found.lacking:
        out.print(
            f"{len(found.lacking)} came without weights or text. A run trusts them; what needs "
            "their weights makes them again here, and no other."
        )
    out.print(_next(found, store), style="dim", soft_wrap=True)


def _next(found: Imported, store: Store) -> str:
    """Return the command that renders the report, with the options that the run had."""
    index = store.ablation(found.ablation) / INDEX
    with intact(index):
        told = read_json(index)
        command = ["bam-lab", "report", told["ablation"]["id"], "--scale", told["scale_name"]]
        command += [part for text in told["overrides"] for part in ("--set", text)]
        command += [part for name in told.get("added", ()) for part in ("--domain", name)]
    return f"Report: {shlex.join([*command, '--store', str(store.root)])}"
