"""`bam-lab data`: build a corpus into the store, show what it is made of, add text of one's own."""

from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console

from bam_lab.cli import data_add, data_licences, data_list, data_show, data_verify, options
from bam_lab.cli.corpora import build, find, spec_of
from bam_lab.cli.output import console, print_json
from bam_lab.errors import EXIT_STAGE_FAILED, InputError
from bam_lab.record.files import intact, read_json
from bam_lab.record.store import Store, store_root

app = typer.Typer(no_args_is_help=True, help="Build the text that models train on, and show it.")
app.command("add")(data_add.add)
app.command("list")(data_list.list_)
app.command("remove")(data_list.remove)

Corpus = Annotated[
    str, typer.Argument(metavar="CORPUS", help="Name of a file of configs/corpus, or a path.")
]


@app.command("build")
def build_verb(
    corpus: Corpus = "default",
    domains: options.Domains = None,
    store: options.StorePath = None,
    quiet: options.Quiet = False,
) -> None:
    """Fetch, clean, split and store a corpus; does nothing if it is there."""
    root = store_root(store)
    folder = build(spec_of(corpus, root, domains), root, quiet)
    data_show.show(data_show.facts(root, folder), console())


@app.command("show")
def show_verb(
    corpus: Corpus = "default",
    domains: options.Domains = None,
    samples: Annotated[
        int, typer.Option("--samples", min=0, metavar="N", help="Excerpts of N documents a domain.")
    ] = 0,
    licences: Annotated[
        bool, typer.Option("--licences", help="Only the attributions that a publication owes.")
    ] = False,
    store: options.StorePath = None,
    json: options.Json = False,
) -> None:
    """Show a built corpus: amounts, cleaning, licences, text, and how different its domains are."""
    root = store_root(store)
    folder = find(corpus, root, domains)
    if licences:
        if samples:
            raise InputError("--samples must stand without --licences, which shows no text.")
        with intact(folder):
            owed = data_licences.licences(read_json(folder / "corpus.json"))
        _print(owed, json, data_licences.show)
    else:
        _print(data_show.facts(root, folder, samples), json, data_show.show)


@app.command("verify")
def verify_verb(
    corpus: Corpus = "default",
    domains: options.Domains = None,
    store: options.StorePath = None,
    json: options.Json = False,
) -> None:
    """Hash a built corpus again, and the tokens made of it; exit with 1 if a file differs."""
    root = store_root(store)
    folder = find(corpus, root, domains)
    count, problems = data_verify.verify(Store(root), folder)
    if json:
        print_json({"folder": str(folder), "files": count, "problems": problems})
    else:
        out = console()
        for problem in problems:
            out.print(problem, style="red", markup=False, soft_wrap=True)
        if problems:
            advice = f"Delete those folders and run: bam-lab data build {corpus}"
            out.print(f"{advice} (what was trained on them is not what its record says).")
        else:
            out.print(f"{count} files are as they were written.")
    if problems:
        raise typer.Exit(EXIT_STAGE_FAILED)


def _print(
    found: dict[str, Any], json: bool, show: Callable[[dict[str, Any], Console], None]
) -> None:
    if json:
        print_json(found)
    else:
        show(found, console())
