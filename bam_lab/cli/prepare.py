"""`bam-lab prepare`: all that needs a network, apart from all that needs a GPU."""

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from bam_lab.cli import options, prepare_tasks
from bam_lab.cli.domains import resolve
from bam_lab.cli.output import console, size
from bam_lab.cli.run import tell
from bam_lab.errors import SpecError
from bam_lab.record.store import Store, store_root

if TYPE_CHECKING:
    from bam_lab.run.reproduce import RunOutcome
    from bam_lab.spec.corpus import CorpusSpec


def prepare(
    reference: options.OptionalReference = None,
    suite: prepare_tasks.Suites = None,
    task: prepare_tasks.Tasks = None,
    corpus: prepare_tasks.Corpus = None,
    scale: options.Scale = None,
    overrides: options.Overrides = None,
    domains: options.Domains = None,
    store: options.StorePath = None,
    workers: options.Workers = None,
    quiet: options.Quiet = False,
) -> None:
    """Download, build, tokenize and order the text of an ablation, or what tasks read.

    Nothing is trained. A run on the store afterwards needs no network, here or on another machine.
    """
    if reference is None or suite or task or corpus:
        others: dict[str, object] = {"ID": reference, "--scale": scale, "--set": overrides}
        others |= {"--domain": domains, "--workers": workers}
        root = store_root(store)
        prepare_tasks.prepare_tasks(suite or (), task or (), corpus, others, root, quiet)
        return
    from bam_lab.run.evaluations import asked_once, suites_of
    from bam_lab.run.reproduce import RunOptions, prepare_ablation
    from bam_lab.spec.tasks import HarnessTask

    where = Store(store_root(store))
    resolved = resolve(reference, scale, overrides, domains, where.root)
    outcome = prepare_ablation(resolved, where, RunOptions(workers=workers, quiet=quiet))
    out = console()
    tell(outcome, out)
    if not outcome.failures:
        command = ["bam-lab", "run", reference, *(("--scale", scale) if scale else ())]
        command += [part for text in overrides or () for part in ("--set", text)]
        command += [part for name in domains or () for part in ("--domain", name)]
        asked = asked_once(suites_of(resolved))
        theirs = [one for one in asked if isinstance(one.task, HarnessTask)]
        problems = prepare_tasks.bring(theirs, where.cache, None, quiet)
        hub = prepare_tasks.hub_folders(theirs)
        for line in _needs(outcome, where, resolved.corpus, hub, command):
            out.print(Text(line), soft_wrap=True)
        if problems:
            raise SpecError(problems)
    raise typer.Exit(outcome.exit_code)


def _needs(
    outcome: "RunOutcome",
    store: Store,
    corpus: "CorpusSpec",
    hub: Sequence[str],
    command: Sequence[str],
) -> Iterator[str]:
    """Say what a machine without a network must have."""
    folders = [store.stage(stage.key) for stage in outcome.graph.stages.values()]
    taken = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    told = size(sum(path.stat().st_size for path in taken))
    yield f"A machine without a network needs these folders of {store.root} ({told}):"
    yield from (f"  stages/{folder.name}" for folder in folders)
    if "--domain" in command:
        yield "  domains"
    if hub:
        yield "what it keeps of the Hugging Face hub:"
        yield from (f"  {folder}" for folder in hub)
    if local := _local(corpus):
        yield "and, since a run looks whether its text has changed, at the same place:"
        yield from (f"  {folder}" for folder in local)
    yield f"There: {shlex.join([*command, '--store', str(store.root)])}"


def _local(corpus: "CorpusSpec") -> list[str]:
    """Return the places of the user's own files that the corpus reads."""
    from bam_lab.spec.corpus import sources_of
    from bam_lab.spec.sources import local_folder

    return list(dict.fromkeys(filter(None, map(local_folder, sources_of(corpus)))))
