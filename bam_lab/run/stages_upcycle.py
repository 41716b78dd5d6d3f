"""The upcycle stage: dense experts in, a mixture and its step-0 receipt out.

Between the two parts of a mixture phase it puts the same weights under the other method's routing;
for Branch-Train-Merge it puts whole models side by side. Neither changes a weight or has a receipt.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bam_lab.data.tokens.encode import token_counts
from bam_lab.data.tokens.heldout import windows
from bam_lab.data.tokens.tfidf import statistics
from bam_lab.model import checkpoint
from bam_lab.model.ensemble import assemble
from bam_lab.record.files import write_json
from bam_lab.run.context import Progress, StageContext
from bam_lab.run.stages_common import (
    TOKENS,
    decode,
    decode_method,
    experts_folders,
    load_model,
    save_model,
    stream_seed,
)
from bam_lab.spec.experts import hash_router, num_experts_of
from bam_lab.spec.methods import BTMMethod, MethodSpec
from bam_lab.spec.model import ModelSpec
from bam_lab.train.numerics import prepare
from bam_lab.upcycle.convert import convert
from bam_lab.upcycle.execute import upcycle as make_state
from bam_lab.upcycle.provenance import moved
from bam_lab.upcycle.receipt import prove

RECEIPT_WINDOWS = 4
"""Held-out windows a domain that the receipt reads."""


def upcycle(context: StageContext) -> None:
    """Write `checkpoint/` (the mixture at step 0) and `receipt.json`."""
    prepare(context.threads)
    spec = decode(context.spec["model"], ModelSpec)
    method = decode_method(context.spec["method"])
    if "mixture" in context.inputs:
        _convert(context, method)
    elif isinstance(method, BTMMethod):
        _assemble(context, spec, method)
    else:
        _mix(context, spec, method)


def _convert(context: StageContext, method: MethodSpec) -> None:
    """Write a trained mixture's weights as a model of `method`."""
    model = convert(load_model(context.inputs["mixture"]), method)
    save_model(context, model.state_dict(), model.spec, method, model.num_experts)


def _assemble(context: StageContext, spec: ModelSpec, method: BTMMethod) -> None:
    """Write the dense models, and the tf-idf statistics of what each was trained on."""
    experts = [load_model(stage) for stage in experts_folders(context.inputs)]
    tokens_dir = context.inputs["tokenizer"] / TOKENS
    context.report(Progress(0, 1, note="reading the training text"))
    idf, centroids = statistics(tokens_dir, context.spec["texts"])
    states = [expert.state_dict() for expert in experts]
    ensemble = assemble(spec, method, states, torch.from_numpy(idf), torch.from_numpy(centroids))
    save_model(context, ensemble.state_dict(), spec, method, len(experts))


def _mix(context: StageContext, spec: ModelSpec, method: MethodSpec) -> None:
    experts = [load_model(stage) for stage in experts_folders(context.inputs)]
    context.report(Progress(0, 2, note="mixing"))
    # FFN routers are drawn first, so arms of a replicate start from the same ones.
    generator = torch.Generator().manual_seed(stream_seed(context.spec["rng_seed"], "upcycle"))
    tokens_dir = context.inputs["tokenizer"] / TOKENS
    counts = None
    if hash_router(method) is not None:
        counts = torch.from_numpy(token_counts(tokens_dir, "train"))
    states = [expert.state_dict() for expert in experts]
    facts: dict[str, Any] = {}
    if len(states) > 1:
        facts["provenance"] = moved(context.settings["experts"], states)
    state = make_state(method, spec, states, generator, counts)
    num_experts = num_experts_of(method, len(experts))
    save_model(context, state, spec, method, num_experts)
    context.report(Progress(1, 2, note="proving step 0"))
    named = list(zip(context.settings["experts"], experts, strict=True))
    mixture = checkpoint.build(spec, method, num_experts, state)
    texts = receipt_windows(tokens_dir, context.settings["domains"], spec)
    write_json(context.work / "receipt.json", prove(mixture, named, texts) | facts)


def receipt_windows(tokens_dir: Path, domains: list[str], spec: ModelSpec) -> dict[str, Tensor]:
    """Return a few held-out windows of each domain."""
    size = spec.max_seq_len
    return {
        domain: torch.from_numpy(
            windows(tokens_dir, domain, "valid", size, RECEIPT_WINDOWS * size).tokens[
                :RECEIPT_WINDOWS
            ]
        )
        for domain in domains
    }
