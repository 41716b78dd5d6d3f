"""What each stage's spec holds, and so what its fingerprint covers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bam_lab.cost.match import PhaseBudget, seed_budget
from bam_lab.data.order.encoder import encoder_digest
from bam_lab.data.sources.local import inputs_digest
from bam_lab.data.tokens.draws import drawn
from bam_lab.record.stages import StageName
from bam_lab.run.stage import Stage, identify, plain
from bam_lab.run.stretches import Stretch
from bam_lab.spec.corpus import CorpusSpec, identity
from bam_lab.spec.data import DataSpec, Similar
from bam_lab.spec.parts import domain_of
from bam_lab.spec.resolved import ResolvedAblation
from bam_lab.spec.scale import PhaseSize

SPLITS = ("valid", "test")
# Guesses of one core, for the order of the queue and the bar's weights only.
_FLOPS_A_SECOND = 2e10
_CORPUS_SECONDS, _TOKENIZER_SECONDS, _ORDER_SECONDS, _UPCYCLE_SECONDS = 120.0, 30.0, 60.0, 3.0

_ORDER_THREADS = 2


def corpus_stage(corpus: CorpusSpec) -> Stage:
    """Return the stage that builds the corpus; it changes when a local text file does."""
    spec = {"corpus": identity(corpus), "files": inputs_digest(corpus)}
    return Stage(
        name="corpus",
        label="corpus",
        spec=spec,
        inputs={},
        fingerprint=identify("corpus", spec, {}),
        threads=1,
        seconds=_CORPUS_SECONDS,
        role="corpus",
        # Where local files lie is needed to read them, and is no part of what they are.
        settings={"corpus": corpus.model_dump(mode="json", by_alias=True)},
    )


def tokenizer_stage(corpus: Stage, vocab_size: int, corpus_digest: str) -> Stage:
    """Return the stage that trains the tokenizer and encodes the corpus."""
    spec = {"vocab_size": vocab_size, "corpus_digest": corpus_digest}
    return Stage(
        name="tokenizer",
        label="tokenizer",
        spec=spec,
        inputs={"corpus": corpus.fingerprint},
        # By the corpus's content, not by how it was made.
        fingerprint=identify("tokenizer", spec, {}),
        threads=1,
        seconds=_TOKENIZER_SECONDS,
        role="tokenizer",
    )


def order_stage(tokenizer: Stage, order: Similar) -> Stage:
    """Return the stage that puts the documents of encoded text into an order.

    An encoder is known by what its folder holds, not by where that lies.

    Raises:
        InputError: the folder is not there.
    """
    spec = {"order": plain(order)}
    if order.is_folder:
        spec["order"]["embedder"] = encoder_digest(Path(order.embedder).expanduser())
    inputs = {"tokenizer": tokenizer.fingerprint}
    return Stage(
        name="order",
        label=order.label,
        spec=spec,
        # The corpus has the words, for encoders that read them; what it is, the tokenizer says.
        inputs={**tokenizer.inputs, **inputs},
        fingerprint=identify("order", spec, inputs),
        threads=_ORDER_THREADS,
        seconds=_ORDER_SECONDS,
        role="order",
        settings={"order": order.model_dump(mode="json", by_alias=True)},
    )


def training_stage(
    resolved: ResolvedAblation,
    name: StageName,
    *,
    size: PhaseSize,
    budget: PhaseBudget,
    inputs: dict[str, str],
    details: dict[str, Any],
    rng_seed: int,
    stretch: Stretch | None = None,
) -> Stage:
    """Return a training stage that spends `budget`: a whole phase, or a stretch of one."""
    stretch = stretch or Stretch(0, budget.steps, size.decay_steps(budget.steps))
    sizes = plain(size)
    del sizes["tokens"]  # the steps say it, and those of the decay
    sizes.pop("decay_share", None)
    spec = {
        "model": plain(resolved.model),
        "optimizer": plain(resolved.scale.optimizer),
        "size": sizes,
        "steps": stretch.last,
        "rng_seed": rng_seed,
        **plain(details),
    }
    if stretch.first:
        spec["first_step"] = stretch.first
    if stretch.decay_steps is not None:
        spec["decay_steps"] = stretch.decay_steps
    return Stage(
        name=name,
        label=name,
        spec=spec,
        inputs=inputs,
        fingerprint=identify(name, spec, inputs),
        threads=size.threads,
        seconds=budget.executed_flops / _FLOPS_A_SECOND / size.threads,
        role=name,
        settings={
            "checkpoint_every": resolved.scale.checkpoint_every,
            "domains": [*resolved.domains, *resolved.recipe.transfer],
            "budget": {
                "training_flops": budget.training_flops,
                "executed_flops": budget.executed_flops,
                "params_total": budget.params.total,
                "params_active": budget.params.active,
                "bytes_communicated": budget.bytes_communicated,
            },
        },
    )


def upcycle_stage(
    resolved: ResolvedAblation,
    details: dict[str, Any],
    sources: Sequence[tuple[str, str]],
    tokenizer: str,
    number: int,
) -> Stage:
    """Return the stage that mixes dense models (label, fingerprint), and proves it at step 0."""
    inputs = {f"expert{i}": fingerprint for i, (_, fingerprint) in enumerate(sources)}
    inputs["tokenizer"] = tokenizer
    spec = {"model": plain(resolved.model), **details, "rng_seed": number}
    return Stage(
        name="upcycle",
        label="upcycle",
        spec=spec,
        inputs=inputs,
        fingerprint=identify("upcycle", spec, inputs),
        threads=resolved.scale.phases.mixture.threads,
        seconds=_UPCYCLE_SECONDS,
        role="upcycle",
        settings={"experts": [label for label, _ in sources], "domains": resolved.domains},
    )


def conversion_stage(
    resolved: ResolvedAblation,
    method: dict[str, Any],
    mixture: Stage,
    tokenizer: str,
    number: int,
) -> Stage:
    """Return the stage that puts a trained mixture's weights under another method's routing."""
    stage = upcycle_stage(resolved, {"method": method}, (), tokenizer, number)
    inputs = {"mixture": mixture.fingerprint, "tokenizer": tokenizer}
    fingerprint = identify("upcycle", stage.spec, inputs)
    return replace(stage, inputs=inputs, fingerprint=fingerprint, role="conversion")


def evaluation_stage(resolved: ResolvedAblation, model: Stage, tokenizer: str, role: str) -> Stage:
    """Return the stage that scores the model which `model` leaves."""
    size = resolved.scale.evaluation
    spec = {
        "model": plain(resolved.model),
        "tokens_per_domain": size.tokens_per_domain,
        "domains": resolved.domains,
        "splits": list(SPLITS),
        "threads": size.threads,
    }
    inputs = {"model": model.fingerprint, "tokenizer": tokenizer}
    texts = len(resolved.domains) * len(SPLITS)
    if alone := resolved.held_out_only:
        spec["held_out_only"] = alone  # on their test split
        texts += len(alone)
    read = size.tokens_per_domain * texts
    budget = seed_budget(resolved)
    seconds = budget.flops.model_forward * read / _FLOPS_A_SECOND / size.threads
    return Stage(
        name="evaluate",
        label=f"evaluate {model.label}",
        spec=spec,
        inputs=inputs,
        fingerprint=identify("evaluate", spec, inputs),
        threads=size.threads,
        seconds=seconds,
        role=role,
        arm=model.arm,
        replicate=model.replicate,
        domain=model.domain,
    )


def mix_of(general: str, branch: str, data: DataSpec) -> dict[str, float]:
    """Return the data mix that a branch is trained on."""
    share = 0.0 if domain_of(branch) == general else data.general_share or 0.0
    return {branch: 1.0 - share} | ({general: share} if share else {})


def pools_of(
    mix: Mapping[str, float], general: str, repeats: int | None, sequences: int
) -> dict[str, int]:
    """Return {domain: sequences}: the part of the general text that a phase reads, `repeats` times.

    Args:
        mix: weights over domains.
        general: the general domain, whose text alone is cut.
        repeats: how often the part is read; None to cut nothing.
        sequences: of the whole phase.
    """
    if repeats is None:
        return {}
    counts = drawn({name: mix[name] for name in sorted(mix) if mix[name] > 0}, sequences)
    return {
        name: math.ceil(count / repeats)
        for name, count in counts.items()
        if domain_of(name) == general and count
    }


def pool_problem(resolved: ResolvedAblation, place: str, pools: Mapping[str, int]) -> str:
    """Return why no corpus of this spec can fill the pools of `pools_of`; empty if one may.

    Every token but end-of-text is a byte or more; how many there are is known after tokenizing.
    """
    corpus = resolved.corpus
    source = corpus.domains[corpus.general]
    documents = 1 / corpus.cleaning.min_characters
    most = source.max_megabytes * 1e6 * (1 + documents)
    needed = max(pools.values()) * resolved.model.max_seq_len
    if needed <= most:
        return ""
    return (
        f"{resolved.path}: {place}: general_repeats must be larger where the corpus has at most "
        f"{source.max_megabytes:g} MB of {corpus.general!r}, got a phase that reads {needed:,} "
        "different tokens of it. Raise it, or take fewer tokens."
    )


def named(stage: Stage, label: str, *, replicate: int | None, arm: str | None = None) -> Stage:
    """Return the stage under another label, for an arm and a replicate (None: shared)."""
    text = label if replicate is None else f"{label} r{replicate}"
    return replace(stage, label=text, arm=arm, replicate=replicate)
