"""The table of stage functions that a worker runs; torch is imported by those that need it."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from bam_lab.errors import InputError
from bam_lab.run.context import Progress, StageContext, StageFunction
from bam_lab.run.stages_common import decode
from bam_lab.spec.corpus import CorpusSpec


def start_afresh(work: Path) -> None:
    """Empty the work folder of what an interrupted attempt left; its spec.json stays."""
    for entry in work.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != "spec.json":
            entry.unlink()


def corpus(context: StageContext) -> None:
    """Build the corpus: `{domain}.{split}.jsonl`, `corpus.json`, `crossed.json`."""
    from bam_lab.data.corpus import ngram
    from bam_lab.data.corpus.build import build
    from bam_lab.data.sources.local import inputs_digest

    def progress(note: str, done: int, total: int) -> None:
        context.check_stop()
        context.report(Progress(done, total, note=note))

    spec = decode(context.settings["corpus"], CorpusSpec)
    manifest = build(spec, context.cache, context.work, progress)
    if inputs_digest(spec) != context.spec["files"]:  # else a mixture would stand under its name
        raise InputError(
            "the local text must stay as it is while a corpus is built, got a file that changed. "
            "Run the same command again: it builds from what is there now."
        )
    ngram.cross(context.work, manifest.domains)  # here, so that reports need not read the text
    context.facts["digest"] = manifest.digest


def tokenizer(context: StageContext) -> None:
    """Train the tokenizer and encode the corpus with it: `tokenizer/`, `tokens/`."""
    from bam_lab.data.tokens.encode import encode_corpus
    from bam_lab.data.tokens.tokenizer import train

    def progress(note: str, done: int, total: int) -> None:
        context.check_stop()
        context.report(Progress(done + 1, total + 1, note=note))

    start_afresh(context.work)
    source = context.inputs["corpus"]
    context.report(Progress(0, 1, note="training the tokenizer"))
    facts = train(source, context.spec["vocab_size"], context.work / "tokenizer")
    context.check_stop()
    encoded = encode_corpus(source, context.work / "tokenizer", context.work / "tokens", progress)
    context.facts.update(vocab_size=facts.vocab_size, digest=encoded.digest, tokens=encoded.tokens)


def order(context: StageContext) -> None:
    """Put training documents in another order: `{domain}.train.npy`, `order.json`."""
    from bam_lab.run.stages_order import order

    start_afresh(context.work)
    order(context)


def calibrate(context: StageContext) -> None:
    """Time models in turn: `calibration.json`."""
    from bam_lab.run.stages_calibrate import calibrate

    start_afresh(context.work)
    calibrate(context)


def seed_model(context: StageContext) -> None:
    """Train the seed model from its initialisation."""
    from bam_lab.run.stages_training import train_seed_model

    train_seed_model(context)


def expert(context: StageContext) -> None:
    """Branch one dense expert from the seed model."""
    from bam_lab.run.stages_training import train_expert

    train_expert(context)


def upcycle(context: StageContext) -> None:
    """Build a mixture from dense experts, with its step-0 receipt."""
    from bam_lab.run.stages_upcycle import upcycle

    start_afresh(context.work)
    upcycle(context)


def mixture(context: StageContext) -> None:
    """Train one arm in the mixture phase."""
    from bam_lab.run.stages_training import train_mixture

    train_mixture(context)


def evaluate(context: StageContext) -> None:
    """Score a model on held-out text: `scores.csv`, `documents.parquet`."""
    from bam_lab.run.stages_evaluate import evaluate

    start_afresh(context.work)
    evaluate(context)


def build_tasks(context: StageContext) -> None:
    """Build the documents of tasks: `tasks.json`, and a file of documents each."""
    from bam_lab.run.stages_tasks import build_tasks

    start_afresh(context.work)
    build_tasks(context)


def tasks(context: StageContext) -> None:
    """Let a model answer tasks: `scores.csv`, `answers.json`, `samples.parquet`."""
    from bam_lab.run.stages_tasks import answer_tasks

    start_afresh(context.work)
    answer_tasks(context)


def routing(context: StageContext) -> None:
    """Measure what a model's routers do on held-out text: `scores.csv`, `tokens.csv`."""
    from bam_lab.run.stages_probes import routing

    start_afresh(context.work)
    routing(context)


def probe(context: StageContext) -> None:
    """Probe a model: `scores.csv`."""
    from bam_lab.run.stages_probes import probe

    start_afresh(context.work)
    probe(context)


def latency(context: StageContext) -> None:
    """Time the arms' completions in turn: `scores.csv`."""
    from bam_lab.run.stages_calibrate import latency

    start_afresh(context.work)
    latency(context)


STAGES: Mapping[str, StageFunction] = MappingProxyType(
    {
        "corpus": corpus,
        "tokenizer": tokenizer,
        "order": order,
        "calibrate": calibrate,
        "seed_model": seed_model,
        "expert": expert,
        "upcycle": upcycle,
        "mixture": mixture,
        "evaluate": evaluate,
        "build_tasks": build_tasks,
        "tasks": tasks,
        "routing": routing,
        "probe": probe,
        "latency": latency,
    }
)
