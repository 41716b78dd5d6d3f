"""`bam-lab data add`: register text of one's own as a domain of the store."""

import glob
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from bam_lab.cli import domains, options
from bam_lab.cli.corpora import shipped, spec_of
from bam_lab.cli.domains import Domain
from bam_lab.cli.output import console, print_json, printable, size
from bam_lab.errors import InputError, SpecError
from bam_lab.record.store import Store, store_root
from bam_lab.spec.base import NAME

if TYPE_CHECKING:
    from bam_lab.data.corpus.inspect import Seen
    from bam_lab.spec.corpus import DomainSource
    from bam_lab.spec.sources import Source


def add(
    domain: Domain,
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A file, a folder, or a pattern in quotes.")
    ],
    licence: Annotated[
        str, typer.Option("--licence", metavar="TEXT", help="Of the text, for reports.")
    ] = "not stated",
    title: Annotated[
        str | None, typer.Option("--title", metavar="TEXT", help="What the text is, for reports.")
    ] = None,
    text_field: Annotated[
        str, typer.Option("--text-field", metavar="F", help="Field or column that holds the text.")
    ] = "text",
    max_megabytes: Annotated[
        float, typer.Option("--max-megabytes", min=0.001, metavar="MB", help="Kept at most.")
    ] = 100.0,
    replace: Annotated[
        bool, typer.Option("--replace", help="Register the name anew if it is there.")
    ] = False,
    store: options.StorePath = None,
    json: options.Json = False,
) -> None:
    """Make a domain of your own text; a run takes it with `--domain DOMAIN`."""
    from bam_lab.data.corpus.inspect import domain_of, inspect

    root = store_root(store)
    _see_name(domain)
    for option, text in (("--title", title), ("--licence", licence)):
        if text is not None and (not text.strip() or printable(text) != text):
            raise InputError(f"{option} must be one line of printable text, got {text!r}.")
    if not math.isfinite(max_megabytes):
        raise InputError(f"--max-megabytes must be a finite number, got {max_megabytes}.")
    source = source_of(domain, path, text_field, licence, max_megabytes)
    _see_taken(root, domain, source, replace)
    with Console(stderr=True).status(Text(f"reading {printable(path)}")):
        try:
            seen = inspect(source, spec_of("default", root).cleaning, Store(root).cache)
        except InputError as error:
            hint = " Here that is --text-field." if "text_field" in str(error) else ""
            if "must have the field" in str(error):
                hint = "\nName the field that holds the text: --text-field."
            raise InputError(f"{error}{hint}") from None
    made = domain_of(title or domain, source, seen, max_megabytes)
    file = domains.write(root, domain, made)
    if json:
        plain = made.model_dump(mode="json")
        print_json({"file": str(file), **vars(seen), "domain": plain})
    else:
        _tell(domain, made, seen, file, console())


def _see_name(domain: str) -> None:
    from bam_lab.spec.parts import part_of
    from bam_lab.spec.recipe import SEED_MODEL

    if not re.fullmatch(NAME, domain) or len(domain) > 60:
        raise SpecError(
            f"DOMAIN must be a name of small letters, digits, - _ and . (60 at most), got "
            f"{domain[:80]!r}."
        )
    if domain == SEED_MODEL or part_of(domain):
        raise SpecError(f"DOMAIN must not be the name of another dense model, got {domain!r}.")
    taken = [name for name, found in shipped().items() if domain in found]
    if taken:
        raise SpecError(
            f"DOMAIN must be new, got {domain!r}, which is a domain of configs/corpus/"
            f"{taken[0]}.yaml. Choose another name."
        )


def _see_taken(root: Path, domain: str, source: "Source", replace: bool) -> None:
    from bam_lab.data.corpus.inspect import place

    if replace or domain not in domains.names(root):
        return
    before = domains.registered(root, [domain])[domain].sources
    if [place(old) for old in before] != [place(source)]:
        raise SpecError(
            f"DOMAIN must be new, got {domain!r}, which is made of {place(before[0])}. "
            "Choose another name, or add --replace."
        )


def source_of(
    domain: str, path: str, text_field: str, licence: str, max_megabytes: float
) -> "Source":
    """Return the source that reads a file, a folder, a pattern, or a data set saved to disk.

    Raises:
        InputError: there is nothing.
    """
    from bam_lab.spec.sources import FilesSource, HubSource

    name = f"{domain}-text"
    found = Path(path).expanduser()
    if found.is_dir() and any((found / mark).is_file() for mark in _SAVED):
        return HubSource(
            kind="huggingface",
            name=name,
            dataset=_text(found.resolve()),
            text_field=text_field,
            licence=licence,
            max_megabytes=max_megabytes,
        )
    if found.is_dir():
        folder, pattern = found, "**/*"
    elif found.exists():
        folder, pattern = found.parent, glob.escape(found.name)
    else:
        folder, pattern = _parted(found)
    return FilesSource(
        kind="files",
        name=name,
        folder=_text(folder.resolve()),
        pattern=_text(Path(pattern)),
        text_field=text_field,
        licence=licence,
        max_megabytes=max_megabytes,
    )


_SAVED = ("dataset_info.json", "state.json", "dataset_dict.json")


def _text(path: Path) -> str:
    text = str(path)
    if printable(text) != text:
        raise InputError(f"PATH must be printable text, got {text!r}. Rename what it leads to.")
    return text


def _parted(path: Path) -> tuple[Path, str]:
    """Return the folder and the pattern of a path with wildcards.

    Raises:
        InputError: it has none, or the folder is not there.
    """
    parts = path.parts
    wild = next((i for i, part in enumerate(parts) if glob.has_magic(part)), None)
    folder = Path(*parts[:wild]) if wild else Path()
    if wild is None or not folder.is_dir():
        raise InputError(f"PATH must be a file, a folder or a pattern, got {path}: nothing there.")
    return folder, "/".join(parts[wild:])


def _tell(name: str, made: "DomainSource", seen: "Seen", file: Path, out: Console) -> None:
    """Print what was found, and what was chosen."""
    for line in _lines(name, made, seen, file):
        out.print(Text(line), soft_wrap=True)


def _lines(name: str, made: "DomainSource", seen: "Seen", file: Path) -> Iterator[str]:
    from bam_lab.data.corpus.inspect import WANTED_DOCUMENTS, WANTED_MEGABYTES, is_small

    chosen = made.hold_out
    yield f"{name}: {seen.documents:,} documents, {size(seen.bytes)} of clean text."
    for reason, count in seen.dropped.items():
        yield f"Dropped: {count:,} {reason}."
    yield from map(printable, seen.notes)
    if seen.bytes / 1e6 > made.max_megabytes:
        yield f"Only {made.max_megabytes:g} MB of it are kept; --max-megabytes takes more."
    held = int(chosen.test * seen.documents)
    yield f"Held out: {chosen.valid:.1%} for validation, {chosen.test:.1%} for the test."
    if is_small(chosen):
        yield (
            f"That is about {held:,} documents each, less than {WANTED_DOCUMENTS} or "
            f"{WANTED_MEGABYTES} MB: differences on this domain are noisy."
        )
    yield f"Written to {file}. Near duplicates and overlaps go when the corpus is built."
    yield f"Use it: bam-lab reproduce bam-attention-routing --domain {name}"
