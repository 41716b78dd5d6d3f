"""Find corpora by name, and what the store holds of them."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bam_lab import resources
from bam_lab.cli.domains import joined
from bam_lab.errors import InputError, SpecError
from bam_lab.record.store import Store

if TYPE_CHECKING:
    from bam_lab.spec.corpus import CorpusSpec


def shipped() -> dict[str, tuple[str, ...]]:
    """Return {corpus: its domains} of configs/corpus."""
    from bam_lab.spec.reader import load

    paths = sorted((resources.folder("configs") / "corpus").glob("*.yaml"))
    return {path.stem: tuple(load(path).data["domains"]) for path in paths}


def spec_of(corpus: str, root: Path, domains: Sequence[str] | None = None) -> "CorpusSpec":
    """Read a corpus by name or path, its local folders made absolute, with domains added.

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
    return joined(located(read(path, CorpusSpec), path.parent.resolve()), root, domains)


def build(corpus: "CorpusSpec", root: Path, quiet: bool = False) -> Path:
    """Build a corpus into the store unless it is there; return its folder.

    Raises:
        InputError: it could not be built; says why and what to do.
    """
    from bam_lab.run.reproduce import RunOptions, build_corpus

    outcome = build_corpus(corpus, Store(root), RunOptions(quiet=quiet))
    if outcome.failures:
        raise InputError("\n".join(outcome.failures.values()))
    return Store(root).stage(outcome.graph.corpus.key)


def find(corpus: str, root: Path, domains: Sequence[str] | None = None) -> Path:
    """Return the folder of a built corpus.

    Raises:
        InputError: the store does not hold it.
    """
    from bam_lab.run.stage_specs import corpus_stage

    key = corpus_stage(spec_of(corpus, root, domains)).key
    if not Store(root).is_whole(key):
        command = shlex.join(["bam-lab", "data", "build", corpus, *_as_options(domains)])
        raise InputError(f"{root} does not hold the corpus {corpus!r}. Build it: {command}")
    return Store(root).stage(key)


def built(corpus: str, root: Path) -> Path | None:
    """Return the folder of a built corpus; None where the store does not hold it.

    Raises:
        SpecError: there is none of that name, or it has problems.
    """
    try:
        return find(corpus, root)
    except InputError:  # not built, or local files of its are missing: it cannot be what is built
        return None


def _as_options(domains: Sequence[str] | None) -> list[str]:
    return [part for name in domains or () for part in ("--domain", name)]
