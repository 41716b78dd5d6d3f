"""Which ablations `bam-lab list` shows: by a reviewer's question, a claim, a paper."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bam_lab.errors import InputError, SpecError
from bam_lab.spec.messages import nearest
from bam_lab.spec.reader import load

Question = Annotated[
    str | None,
    typer.Option("--question", metavar="ID", help="Only those that answer a question: A7."),
]
Claim = Annotated[
    str | None,
    typer.Option("--claim", metavar="ID", help="Only those that judge a claim: C2, or C2a alone."),
]
Paper = Annotated[
    str | None,
    typer.Option("--paper", metavar="NAME", help="Only those of bam, btx, lory or upcycling."),
]


@dataclass(frozen=True)
class Filter:
    """Hold what to look for; None for any."""

    question: str | None = None
    claim: str | None = None
    paper: str | None = None


def chosen(paths: Sequence[Path], wanted: Filter) -> list[Path]:
    """Return the files that match; all where nothing is asked.

    A file that cannot be read matches nothing: `list` without a filter tells its problems.

    Raises:
        InputError: no file has a name that is asked for.
    """
    if wanted == Filter():
        return list(paths)
    read = {path: _data(path) for path in paths}
    found = set(paths)
    for option, asked, names, same in (
        ("--question", wanted.question, _answers, str.__eq__),
        ("--claim", wanted.claim, _claims, _is_claim),
        ("--paper", wanted.paper, _papers, str.__eq__),
    ):
        if asked is None:
            continue
        known = {path: names(path, data) for path, data in read.items()}
        matching = {path for path, has in known.items() if any(same(asked, name) for name in has)}
        if not matching:
            every = {name for has in known.values() for name in has}
            raise InputError(
                f"{option} must name what an ablation has, got {asked!r}. {nearest(asked, every)}"
            )
        found &= matching
    return [path for path in paths if path in found]


def _data(path: Path) -> dict[str, Any]:
    try:
        return load(path).data
    except SpecError:
        return {}


def _names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list) else []


def _answers(path: Path, data: dict[str, Any]) -> list[str]:
    return _names(data.get("answers"))


def _claims(path: Path, data: dict[str, Any]) -> list[str]:
    return _names(data.get("claims"))


def _papers(path: Path, data: dict[str, Any]) -> list[str]:
    """Return the folder's name and the paper's number: `bam`, `2408.08274`."""
    source = data.get("source")
    paper = str(source.get("paper", "")) if isinstance(source, dict) else ""
    return [path.parent.name, *([paper.removeprefix("arXiv:")] if paper else [])]


def _is_claim(asked: str, name: str) -> bool:
    """Return whether a claim is the one asked for, or a part of it: C2a of C2, not C20 of C2."""
    return name == asked or (name[:-1] == asked and name[-1].isalpha())
