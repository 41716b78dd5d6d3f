"""`bam-lab data`: build a corpus into the store, and show what it is made of."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from bam_lab import resources
from bam_lab.cli import options
from bam_lab.cli.output import console, print_json, size, table
from bam_lab.errors import InputError, SpecError
from bam_lab.record.files import intact, read_json
from bam_lab.record.store import Store, store_root

if TYPE_CHECKING:
    from bam_lab.spec.corpus import CorpusSpec

app = typer.Typer(no_args_is_help=True, help="Build the text that models train on, and show it.")

Corpus = Annotated[
    str, typer.Argument(metavar="CORPUS", help="Name of a file of configs/corpus, or a path.")
]


@app.command("build")
def build_verb(
    corpus: Corpus = "default",
    store: options.StorePath = None,
    quiet: options.Quiet = False,
) -> None:
    """Fetch, clean, split and store a corpus; does nothing if it is there."""
    folder = build(corpus, store_root(store), quiet)
    with intact(folder):
        show(read_json(folder / "corpus.json"), folder, console())


@app.command("show")
def show_verb(
    corpus: Corpus = "default", store: options.StorePath = None, json: options.Json = False
) -> None:
    """Show a built corpus: domains, splits, sources with version and licence."""
    folder = find(corpus, store_root(store))
    with intact(folder):
        manifest = read_json(folder / "corpus.json")
        if json:
            print_json(manifest)
        else:
            show(manifest, folder, console())


def spec_of(corpus: str) -> "CorpusSpec":
    """Read a corpus by name or path, its local folders made absolute.

    Raises:
        SpecError: there is none of that name, or it has problems.
    """
    from bam_lab.spec.corpus import CorpusSpec, located
    from bam_lab.spec.messages import nearest
    from bam_lab.spec.reader import read

    if corpus.endswith((".yaml", ".yml")) or "/" in corpus:
        path = Path(corpus)
    else:
        folder = resources.folder("configs") / "corpus"
        path = folder / f"{corpus}.yaml"
        if not path.is_file():
            hint = nearest(corpus, [found.stem for found in folder.glob("*.yaml")])
            raise SpecError(f"{corpus}: must name a file of configs/corpus or be a path. {hint}")
    return located(read(path, CorpusSpec), path.parent.resolve())


def build(corpus: str, root: Path, quiet: bool = False) -> Path:
    """Build a corpus into the store unless it is there; return its folder.

    Raises:
        SpecError: the corpus's file has problems.
        InputError: it could not be built; says why and what to do.
    """
    from bam_lab.run.reproduce import RunOptions, build_corpus

    outcome = build_corpus(spec_of(corpus), Store(root), RunOptions(quiet=quiet))
    if outcome.failures:
        raise InputError("\n".join(outcome.failures.values()))
    return Store(root).stage(outcome.graph.corpus.key)


def find(corpus: str, root: Path) -> Path:
    """Return the folder of a built corpus.

    Raises:
        InputError: the store does not hold it.
    """
    from bam_lab.run.stage_specs import corpus_stage

    key = corpus_stage(spec_of(corpus)).key
    if not Store(root).is_done(key):
        raise InputError(
            f"{root} does not hold the corpus {corpus!r}. Build it: bam-lab data build {corpus}"
        )
    return Store(root).stage(key)


def show(manifest: dict[str, Any], folder: Path, out: Console) -> None:
    """Print a corpus's manifest."""
    out.print(f"digest {manifest['digest'][:16]}   {folder}", soft_wrap=True)
    for name, domain in manifest["domains"].items():
        out.print(f"\n[bold]{name}[/bold]: {domain['title']}", markup=True)
        if domain["stands_in_for"]:
            out.print(f"stands in for {domain['stands_in_for']} (of the papers)")
        out.print(_domain_table(domain))
        out.print(f"{domain['moved']} held-out documents overlapped training and moved there.")
        for source, record in domain["sources"].items():
            if record["failure"]:
                out.print(f"{source} is missing: {record['failure']}", style="red", markup=False)


def _domain_table(domain: dict[str, Any]) -> Any:
    made = table("source", ">train", ">valid", ">test", ">documents", "from", "licence")
    rows = {**domain["sources"], "all": {"splits": domain["splits"]}}
    for source, record in rows.items():
        splits = record["splits"]
        sizes = [_size(splits[split]["bytes"]) for split in ("train", "valid", "test")]
        documents = "/".join(
            str(splits[split]["documents"]) for split in ("train", "valid", "test")
        )
        made.add_row(
            source, *sizes, documents, record.get("package") or "", record.get("licence", "")
        )
    return made


def _size(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e5 else size(count)
