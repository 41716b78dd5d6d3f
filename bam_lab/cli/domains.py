"""The user's own domains: one file each in the store, and what takes them into an ablation.

`<store>/domains/NAME.yaml` holds a domain as a corpus file would.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bam_lab.errors import SpecError
from bam_lab.record.files import make_folder, write_text

if TYPE_CHECKING:
    from bam_lab.spec.corpus import CorpusSpec, DomainSource
    from bam_lab.spec.resolved import ResolvedAblation

Domain = Annotated[str, typer.Argument(metavar="DOMAIN", help="Its name: a-z, 0-9, - _ and .")]
HEAD = (
    "# A domain of your own, written by `bam-lab data add`. `--domain NAME` takes it into a run;\n"
    "# the fields are those of a corpus file.\n"
)


def file_of(root: Path, name: str) -> Path:
    """Return where a domain of that name is registered."""
    return root / "domains" / f"{name}.yaml"


def names(root: Path) -> list[str]:
    """Return the registered domains, by name."""
    return sorted(path.stem for path in (root / "domains").glob("*.yaml"))


def registered(root: Path, wanted: Sequence[str]) -> "dict[str, DomainSource]":
    """Read domains by name.

    Raises:
        SpecError: one is not there, is named twice, or its file has problems.
    """
    from bam_lab.spec.corpus import DomainSource
    from bam_lab.spec.messages import nearest
    from bam_lab.spec.reader import read

    twice = sorted({name for name in wanted if wanted.count(name) > 1})
    if twice:
        raise SpecError(f"--domain must name each domain once, got {', '.join(twice)} again.")
    known = names(root)
    problems = []
    for name in wanted:
        if name not in known:
            hint = nearest(name, known) if known else "There are none."
            problems.append(
                f"--domain {name}: must be a domain that `bam-lab data add` put into {root}. {hint}"
            )
    if problems:
        raise SpecError(problems)
    return {name: read(file_of(root, name), DomainSource) for name in wanted}


def resolve(
    reference: str,
    scale: str | None,
    overrides: Sequence[str] | None,
    domains: Sequence[str] | None,
    root: Path,
) -> "ResolvedAblation":
    """Resolve an ablation with what the options change.

    Raises:
        SpecError: with every problem of every file at once.
    """
    from bam_lab.spec.load import load_ablation

    added = registered(root, domains or ())
    return load_ablation(reference, scale=scale, overrides=overrides or (), added=added)


def joined(corpus: "CorpusSpec", root: Path, domains: Sequence[str] | None) -> "CorpusSpec":
    """Return a corpus with domains of the user's own beside its own.

    Raises:
        SpecError: one is not there, or cannot be added to this corpus.
    """
    from bam_lab.spec.added import added_problems, joined

    added = registered(root, domains or ())
    if problems := added_problems(corpus, added):
        raise SpecError(problems)
    return joined(corpus, added)


def write(root: Path, name: str, domain: "DomainSource") -> Path:
    """Register a domain; its file is replaced at once."""
    path = file_of(root, name)
    make_folder(path.parent)
    write_text(path, HEAD + as_yaml(domain))
    return path


def as_yaml(domain: "DomainSource") -> str:
    """Return a domain as YAML: block style outside, JSON (which is YAML too) within."""
    plain = domain.model_dump(mode="json", exclude_defaults=True)
    sources = plain.pop("sources")
    lines = [f"{key}: {_json(value)}" for key, value in plain.items()]
    return "\n".join([*lines, "sources:", *(f"  - {_json(source)}" for source in sources), ""])


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
