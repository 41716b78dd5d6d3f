"""Run an ablation from its spec to its index: corpus first, then everything that hangs on it.

No torch here: when every stage is done, no worker starts.
"""

import importlib.util
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rich.console import Console

from bam_lab.errors import EXIT_BAD_INPUT, EXIT_DONE, EXIT_STAGE_FAILED, InputError
from bam_lab.record.files import intact, read_json
from bam_lab.record.numerics import (
    Device,
    Numerics,
    Precision,
    detect,
    require_device,
    settle,
    stored,
)
from bam_lab.record.stages import TEXT, StageName
from bam_lab.record.store import Store
from bam_lab.run.calibration import calibrated
from bam_lab.run.graph import build_graph
from bam_lab.run.index import write_index
from bam_lab.run.outcome import GraphRun, Settings
from bam_lab.run.pool import COMMAND
from bam_lab.run.progress import Display
from bam_lab.run.scheduler import run_graph, unfinished
from bam_lab.run.stage import Graph
from bam_lab.run.stage_specs import corpus_stage
from bam_lab.spec.corpus import CorpusSpec
from bam_lab.spec.resolved import ResolvedAblation

EXTRAS: dict[str, tuple[str, ...]] = {
    "train": ("torch", "lightning", "safetensors", "jaxtyping"),
    "data": ("tokenizers", "rensa"),
    "eval": ("lm_eval",),
    "hf": ("peft", "transformers"),
}
USED_BY: dict[str, set[StageName]] = {
    "train": {
        *("calibrate", "seed_model", "expert", "upcycle", "mixture", "evaluate"),
        *("tasks", "routing", "probe", "latency"),
    },
    "data": {"corpus", "tokenizer", "order", "build_tasks"},
    "eval": {"tasks"},
    "hf": set(),  # low-rank branches alone, which `require` is told of
}
FIRST: tuple[StageName, ...] = ("corpus", "calibrate")
"""The stages whose results enter the fingerprints of others, and which read none."""


@dataclass(frozen=True)
class RunOutcome:
    """Say how a run went.

    Attributes:
        index: the ablation's index in the store; None when the corpus failed.
        ran: stages that this call did; 0 when all were done before.
        failures: label -> reason, of stages that failed.
        missing: label -> reason, of stages that could not run because another failed.
        exit_code: 0 done, 1 a stage failed, 2 all failures are for the user to mend.
    """

    graph: Graph
    index: Path | None
    ran: int
    failures: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    exit_code: int = EXIT_DONE


@dataclass(frozen=True)
class RunOptions:
    """Hold the run arguments: they change how it runs, and no number (numerics are checked)."""

    workers: int | None = None
    precision: Precision | Literal["auto"] = "auto"
    device: Device | Literal["auto"] = "auto"
    quiet: bool = False
    command: Sequence[str] = COMMAND


def current_graph(resolved: ResolvedAblation, store: Store, replicates: int) -> Graph:
    """Return the ablation's graph, with final fingerprints if the store holds what they hang on.

    Raises:
        SpecError: two arms are the same run, or the match cannot be solved.
    """
    key = corpus_stage(resolved.corpus).key
    digest = None
    if store.is_done(key):
        with intact(store.stage(key)):
            digest = str(read_json(store.stage(key) / "corpus.json")["digest"])
    return build_graph(calibrated(resolved, store), replicates, digest)


def run_ablation(
    resolved: ResolvedAblation,
    store: Store,
    replicates: int | None = None,
    options: RunOptions | None = None,
    console: Console | None = None,
) -> RunOutcome:
    """Do every stage that is not done, and write the index.

    Args:
        resolved: the checked ablation.
        store: where results are and go.
        replicates: how many; None for the spec's own number.
        options: run arguments.
        console: where progress goes; standard error when None.

    Raises:
        SpecError: the graph cannot be built.
        InputError: the store cannot be written, or was settled to other numerics.
        KeyboardInterrupt: the user stopped; checkpoints are kept.
    """
    options = options or RunOptions()
    console = console or Console(stderr=True)
    count = resolved.ablation.replicates.count if replicates is None else replicates
    graph = current_graph(resolved, store, count)
    store.prepare()
    # Settled even when nothing is left to do: asking for other numerics is an error, not a silence.
    numerics = settle(store, options.precision, options.device)
    if any(stage.name not in TEXT for stage in unfinished(graph, store)):
        require_device(store, numerics)
    before = 0
    if not graph.known:
        first = {key: stage for key, stage in graph.stages.items() if stage.name in FIRST}
        done = _run(Graph(first, False, graph.corpus), store, numerics, options, console)
        if done.failures:
            return _outcome(graph, None, done)
        before = done.finished
        graph = current_graph(resolved, store, count)
    index = write_index(resolved, graph, store, count)
    return _outcome(graph, index, _run(graph, store, numerics, options, console), before)


def prepare_ablation(
    resolved: ResolvedAblation,
    store: Store,
    options: RunOptions | None = None,
    console: Console | None = None,
) -> RunOutcome:
    """Do every stage that only makes text ready: corpus, tokenizer and orders (`bam-lab prepare`).

    Raises:
        SpecError: the graph cannot be built.
        InputError: the store cannot be written.
        KeyboardInterrupt: the user stopped.
    """
    built = build_corpus(resolved.corpus, store, options, console)
    if built.failures:
        return built
    whole = current_graph(resolved, store, 1)
    stages = {key: stage for key, stage in whole.stages.items() if stage.name in TEXT}
    graph = Graph(stages, True, whole.corpus)
    done = _run_text(graph, store, options, console)
    return _outcome(graph, None, done, built.ran)


def build_corpus(
    corpus: CorpusSpec,
    store: Store,
    options: RunOptions | None = None,
    console: Console | None = None,
) -> RunOutcome:
    """Build only the corpus (`bam-lab data build`)."""
    store.prepare()
    stage = corpus_stage(corpus)
    graph = Graph({stage.fingerprint: stage}, False, stage)
    return _outcome(graph, None, _run_text(graph, store, options, console))


def _run_text(
    graph: Graph, store: Store, options: RunOptions | None, console: Console | None
) -> GraphRun:
    """Run stages of text alone: a login node without a GPU settles nothing for the store."""
    numerics = stored(store) or detect()
    console = console or Console(stderr=True)
    return _run(graph, store, numerics, options or RunOptions(), console, whole=True)


def _run(
    graph: Graph,
    store: Store,
    numerics: Numerics,
    options: RunOptions,
    console: Console,
    whole: bool = False,
) -> GraphRun:
    left = unfinished(graph, store, whole)
    if not left:
        return GraphRun(0, {})
    low_rank = any("lora" in stage.spec for stage in left)
    require({stage.name for stage in left}, ["hf"] if low_rank else ())
    settings = Settings(numerics, options.workers, options.command, whole)
    try:
        with Display(graph, console, options.quiet) as display:
            return run_graph(graph, store, settings, display)
    except KeyboardInterrupt:
        console.print("stopped; checkpoints are kept. Run the same command again to go on.")
        raise


def require(stages: set[StageName], extras: Collection[str] = ()) -> None:
    """See that what these stages import, and `extras`, are installed; torch is not imported.

    Raises:
        InputError: naming what is missing and the extras that bring it.
    """
    lacking = {
        extra: [name for name in packages if importlib.util.find_spec(name) is None]
        for extra, packages in EXTRAS.items()
        if extra in extras or stages & USED_BY[extra]
    }
    lacking = {extra: names for extra, names in lacking.items() if names}
    if lacking:
        names = ", ".join(name for found in lacking.values() for name in found)
        raise InputError(
            f"{names} must be installed for this. Run: pip install 'bam-lab[{','.join(lacking)}]'"
        )


def _outcome(graph: Graph, index: Path | None, done: GraphRun, before: int = 0) -> RunOutcome:
    def told(missing: bool) -> dict[str, str]:
        return {
            graph.stages[fingerprint].label: failure.reason
            for fingerprint, failure in done.failures.items()
            if failure.missing == missing
        }

    code = EXIT_DONE
    if done.failures:
        failed = [failure for failure in done.failures.values() if not failure.missing]
        mendable = all(failure.exit_code == EXIT_BAD_INPUT for failure in failed)
        code = EXIT_BAD_INPUT if mendable else EXIT_STAGE_FAILED
    return RunOutcome(graph, index, before + done.finished, told(False), told(True), code)
