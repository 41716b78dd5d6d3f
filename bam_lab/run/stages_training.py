"""The three training stages: seed model, expert, mixture. They differ in what they start from.

Every stage leaves `checkpoint/`, `metrics.jsonl` and `ledger.json`; while it runs, `resume.pt`
holds where it would continue. A piece of a stable run keeps that: the next piece, or the decay,
starts there.
"""

import math
from collections.abc import Callable

import torch

from bam_lab.data.tokens.batches import Batches
from bam_lab.errors import InputError
from bam_lab.evaluate.churn import watch_of
from bam_lab.evaluate.heldout import domain_nats
from bam_lab.methods import module_of
from bam_lab.model.transformer import Transformer, initialise
from bam_lab.record import ledger
from bam_lab.run.context import Progress, StageContext
from bam_lab.run.stages_common import (
    TOKENS,
    decode,
    decode_method,
    load_model,
    save_model,
    stream_seed,
)
from bam_lab.spec.branches import LoRASpec
from bam_lab.spec.experts import is_mixture
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.parts import domain_of
from bam_lab.spec.scale import OptimizerSpec
from bam_lab.train import callbacks, resume
from bam_lab.train.fit import Fitted, fit
from bam_lab.train.module import TrainedModule
from bam_lab.train.optim import Training

VALIDATIONS = 10
"""Points of a phase's validation curve."""
VALIDATION_TOKENS = 2048
"""Held-out tokens a domain at each point, at most a batch's; always the same, so that the curve has
no sampling noise."""
WATCHED_TOKENS = 512
"""Held-out tokens a domain, in whole windows, of which router churn is measured at each point."""


def train_seed_model(context: StageContext) -> None:
    """Train the seed model, or another dense one, from its random initialisation."""

    def start() -> Transformer:
        spec = decode(context.spec["model"], ModelSpec)
        model = Transformer(spec, decode_method(context.spec["method"]), 1)
        seed = stream_seed(context.spec["rng_seed"], "initialise")
        return initialise(model, torch.Generator().manual_seed(seed))

    _train(context, start)


def train_expert(context: StageContext) -> None:
    """Train a branch of the seed model: all of it, or adapters that end up merged into it."""
    if "lora" not in context.spec:
        _train(context, lambda: load_model(context.inputs["seed_model"]))
        return
    from bam_lab.hf import lora

    spec = decode(context.spec["lora"], LoRASpec)
    seed = stream_seed(context.spec["rng_seed"], "adapters")

    def start() -> Transformer:
        return lora.attach(load_model(context.inputs["seed_model"]), spec, seed)

    _train(context, start, lora.merge)


def train_mixture(context: StageContext) -> None:
    """Train an arm: from its upcycling, or densely from the seed model or a random start."""
    inputs = context.inputs
    before = inputs.get("before") or inputs.get("upcycle") or inputs.get("seed_model")
    if before is None:
        train_seed_model(context)
    else:
        _train(context, lambda: load_model(before))


def _train(
    context: StageContext,
    start: Callable[[], Transformer],
    finish: Callable[[Transformer], Transformer] = lambda model: model,
) -> None:
    """Train from `start()`, or from where an interrupted attempt stopped; keep `finish` of it."""
    if (context.work / ledger.NAME).exists():  # An attempt ended between training and publishing.
        _leave(context)
        return
    module = module_of(start(), training_of(context))
    batches = batches_of(context)
    fitted = _fit(context, module, batches)
    model = finish(module.model)
    state = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
    save_model(context, state, model.spec, model.method, model.num_experts)
    _write_ledger(context, fitted, batches)
    context.facts.update(resumed_from=fitted.resumed_from)
    _leave(context)


def _leave(context: StageContext) -> None:
    """Remove the state that training would continue from, unless another stage does."""
    if context.spec.get("decay_steps") != 0:
        resume.discard(context.work)


def training_of(context: StageContext) -> Training:
    """Return the phase's optimizer and schedule."""
    size = context.spec["size"]
    optimizer = decode(context.spec["optimizer"], OptimizerSpec)
    return Training(
        steps=context.spec["steps"],
        peak_lr=size["peak_lr"],
        warmup_steps=size["warmup_steps"],
        final_lr_share=size["final_lr_share"],
        noise_seed=stream_seed(context.spec["rng_seed"], "noise") >> 1,
        decay_steps=context.spec.get("decay_steps"),
        **optimizer.model_dump(),
    )


def batches_of(context: StageContext) -> Batches:
    """Return the phase's batches: the same for all arms of a replicate, whatever their steps."""
    return Batches(
        context.inputs["tokenizer"] / TOKENS,
        context.spec["mix"],
        context.spec["size"]["batch_sequences"],
        context.spec["model"]["max_seq_len"],
        stream_seed(context.spec["rng_seed"], f"batches of {context.name}"),
        pools=context.spec.get("pools", {}),
        order_dir=context.inputs.get("order"),
    )


def _fit(context: StageContext, module: TrainedModule, batches: Batches) -> Fitted:
    def progress(at: callbacks.Progress) -> None:
        context.check_stop()
        done, all_steps = at.step - first, at.steps - first
        context.report(Progress(done, all_steps, at.tokens_per_s, at.seconds_left))

    first = _first_step(context)
    steps = context.spec["steps"] - first
    return fit(
        module,
        batches,
        workdir=context.work,
        precision=context.numerics.precision,
        device=context.numerics.device,
        threads=context.threads,
        checkpoint_every=context.settings["checkpoint_every"],
        progress=progress,
        validate=validation(context, module),
        validate_every=math.ceil(steps / VALIDATIONS),
        watch=watching(context, module),
        before=_before(context),
    )


def _first_step(context: StageContext) -> int:
    """Return how many steps of the phase another stage has done."""
    return int(context.spec.get("first_step", 0))


def _before(context: StageContext) -> resume.ResumeState | None:
    """Return the end of the stretch that this stage continues, if it does.

    Raises:
        InputError: it is damaged, or not there.
    """
    if "before" not in context.inputs:
        return None
    folder = context.inputs["before"]
    state = resume.load(folder)
    if state is None:
        raise InputError(
            f"{folder} must hold {resume.NAME}, where its training ended. Delete the folder: the "
            "stage is then trained again."
        )
    return state


def validation(context: StageContext, module: TrainedModule) -> Callable[[], dict[str, float]]:
    """Return a function that gives domain -> nats a token on a small fixed held-out slice."""
    tokens_dir = context.inputs["tokenizer"] / TOKENS
    seq_len = context.spec["model"]["max_seq_len"]
    tokens = min(VALIDATION_TOKENS, seq_len * context.spec["size"]["batch_sequences"])

    def validate() -> dict[str, float]:
        return domain_nats(
            module.model,
            tokens_dir,
            context.settings["domains"],
            "valid",
            seq_len,
            tokens,
            context.numerics.precision,
        )

    return validate


def watching(context: StageContext, module: TrainedModule) -> callbacks.Watch:
    """Return a function that gives the routers' churn on a small fixed held-out slice.

    Of the domains that the phase itself reads, so that no other arm of an ablation changes it.
    """
    if not is_mixture(module.model.method):
        return lambda before: ({}, before)
    return watch_of(
        module.model,
        context.inputs["tokenizer"] / TOKENS,
        list(dict.fromkeys(map(domain_of, context.spec["mix"]))),
        "valid",
        context.spec["model"]["max_seq_len"],
        WATCHED_TOKENS,
        context.numerics.precision,
    )


def _write_ledger(context: StageContext, fitted: Fitted, batches: Batches) -> None:
    devices = context.threads if context.numerics.device == "cpu" else 1
    read = context.spec["steps"]  # of the phase, stretches before this one included
    sources = {name: reads._asdict() for name, reads in batches.sources(read).items()}
    shares = batches.shares(read)
    context.facts.update(shares=shares, sources=sources)
    spent = ledger.Ledger(
        tokens=fitted.tokens,
        steps=fitted.steps,
        device_seconds=fitted.seconds * devices,
        wall_seconds=fitted.seconds,
        first_step=_first_step(context),
        epochs=batches.epochs(read),
        shares=shares,
        sources=sources,
        **context.settings["budget"],
    )
    ledger.write(context.work, spent)
