"""How far the weights of experts move from the prompt's, by distance behind it.

    rows = drift_rows(model, text, prompt_len, bin_len=16, precision="float32")

The drift of a bin is the total variation distance, half the sum of absolute differences, between
the shares of the experts in it and in the prompt; 0 where they are the same, 1 where no expert
serves both. It is measured where text is routed on, whatever it is: true completions, those of
another domain (`texts.switched`), a model's own (`long.own_completions`). For methods that route
segments the prompt's shares are what prompt-only routing keeps for the whole completion, so drift
says how wrong that has become; for all others, the mean over the prompt's tokens. A gate's share is
its part of a token's gates; where experts are chosen, choices count (`routing_counts.py`). Of
Branch-Train-Merge it is the posterior of the models.

Shapes: B batch, T tokens, P decisions, E experts.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from bam_lab.errors import SpecError
from bam_lab.evaluate.likelihood import (
    BATCH_TOKENS,
    Precision,
    device_of,
    routes_segments,
)
from bam_lab.evaluate.probes.long import check_bins
from bam_lab.evaluate.probes.losses import batches, check
from bam_lab.evaluate.probes.rows import Row, row
from bam_lab.evaluate.probes.segment_lens import segment_facts, segment_len_of
from bam_lab.evaluate.probes.texts import Text
from bam_lab.evaluate.routing_counts import decision_of, routings_of, weights
from bam_lab.model.context import RoutingRule
from bam_lab.model.ensemble import Ensemble
from bam_lab.model.router import Routing, everyone, select
from bam_lab.model.segment_moe import SegmentMoE
from bam_lab.model.transformer import Transformer
from bam_lab.spec.experts import has_bos
from bam_lab.spec.methods import LoryMethod, Unrouted

_TINY = 1e-30  # a token that no expert serves has shares of 0


@torch.no_grad()
def drift_rows(
    model: Transformer | Ensemble,
    text: Sequence[Text],
    prompt_len: int,
    bin_len: int,
    *,
    precision: Precision,
    batch_tokens: int = BATCH_TOKENS,
    task: str = "drift",
) -> list[Row]:
    """Return the drift of every router, and the mean over routers (`*`), by distance.

    The last token of a row is not read, as in the losses of the same rows.

    Args:
        model: any that has experts and a causal inference rule.
        text: rows, of one length each.
        prompt_len: tokens of the prompts; whole segments where the method routes them.
        bin_len: tokens of a bin; the last one may have fewer.
        precision: as for held-out text.
        batch_tokens: tokens of a forward pass.
        task: the rows' own name, to tell whose completions these are.

    Raises:
        SpecError: the model has no weights that could move, or a length does not fit.
    """
    problems = [] if (reason := no_drift(model)) is None else [reason]
    segment = segment_len_of(model)
    if segment is not None and prompt_len % segment:
        problems.append(
            f"prompt_len must be whole segments of {segment} tokens to know the prompt's weights, "
            f"got {prompt_len}. Take a multiple."
        )
    if problems:
        raise SpecError(problems)
    check_bins(bin_len)
    rows: list[Row] = []
    for own in text:
        length = own.tokens.shape[1]
        rule: RoutingRule = "segment" if routes_segments(model) else "prompt"
        check(model, length, prompt_len, batch_tokens, rule)
        if length - prompt_len < 2:
            raise SpecError(
                "completion_len must be at least 2 to read a token behind the prompt, got "
                f"{length - prompt_len}. Cut longer rows."
            )
        common = {
            "domain": own.domain,
            "prompt_domain": own.prompt_domain,
            "context": length,
            "rule": rule,
            "prompt_len": prompt_len,
            "completion_len": length - prompt_len,
            "unit": "",
        } | segment_facts(model, model)
        found = _drifts(model, own.tokens, prompt_len, bin_len, precision, batch_tokens)
        found["*", "*"] = np.mean(list(found.values()), 0)
        for (layer, router), values in found.items():
            for number, value in enumerate(values):
                start = number * bin_len
                at = {
                    "distance": start,
                    "bin_len": min(bin_len, length - 1 - prompt_len - start),
                    "layer": layer,
                    "router": router,
                }
                rows.append(row(task, "drift", float(value), len(own.tokens), **at, **common))
    return rows


def no_drift(model: Transformer | Ensemble) -> str | None:
    """Return why a model has no expert weights that could move; None if it has."""
    method = model.method
    if isinstance(model, Ensemble):
        return None
    if isinstance(method, Unrouted):
        return (
            f"method must route to measure the drift of expert weights, got {method.method}, which "
            "has no router. Leave this model out."
        )
    if isinstance(method, LoryMethod) and method.routing == "prefix":
        return (
            "routing must be causal to measure the drift of expert weights, got prefix: one "
            "decision holds for the whole sequence. Leave this model out."
        )
    return None


def _drifts(
    model: Transformer | Ensemble,
    tokens: Int[ndarray, "N L"],
    prompt_len: int,
    bin_len: int,
    precision: Precision,
    batch_tokens: int,
) -> dict[tuple[int | str, str], Float[ndarray, " bins"]]:
    """Return each router's mean drift in each bin."""
    sums: dict[tuple[int | str, str], Tensor] = defaultdict(lambda: torch.zeros(1))
    device = device_of(model)
    for rows in batches(tokens, batch_tokens):
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16-mixed"):
            pairs = list(_shares(model, rows[:, :-1].to(device), prompt_len))
        for place, before, shares in pairs:
            bins = torch.split(shares[:, prompt_len:], bin_len, 1)
            means = torch.stack([part.mean(1) for part in bins], 1)  # B bins E
            moved = (means - before[:, None]).abs().sum(-1) / 2
            sums[place] = sums[place] + moved.sum(0).cpu()
    return {place: (total / len(tokens)).numpy() for place, total in sums.items()}


def _shares(
    model: Transformer | Ensemble, tokens: Int[Tensor, "B T"], prompt_len: int
) -> Iterator[tuple[tuple[int | str, str], Float[Tensor, "B E"], Float[Tensor, "B T E"]]]:
    """Yield each router with its shares in the prompt, and at every token."""
    if isinstance(model, Ensemble):
        posterior = model.posterior(tokens).double()
        yield ("*", "posterior"), posterior[:, :prompt_len].mean(1), posterior
        return
    output = model(tokens)
    for place, routing in routings_of(output):
        followed = decision_of(model.method, tokens.shape[1], routing.logits.shape[1])
        shares = _normed(weights(routing))[:, followed.to(tokens.device)]
        before = shares[:, :prompt_len].mean(1)
        if routes_segments(model):
            before = _normed(weights(_of_prompt(model, place.layer, routing, prompt_len)))[:, 0]
        yield (place.layer, place.router), before, shares


def _normed(found: Float[Tensor, "B P E"]) -> Float[Tensor, "B P E"]:
    found = found.double()
    return found / found.sum(-1, keepdim=True).clamp_min(_TINY)


def _of_prompt(model: Transformer, layer: int, routing: Routing, prompt_len: int) -> Routing:
    """Return the decision by the mean over the whole prompt.

    Logits are linear in that mean, and a decision's are those of the segment before: so they are
    the mean of the decisions behind each of the prompt's segments.
    """
    segment, first = segment_len_of(model), 1 + has_bos(model.method)
    assert segment is not None
    logits = routing.logits[:, first : first + prompt_len // segment].mean(1, keepdim=True)
    ffn = model.layers[layer].ffn
    if isinstance(ffn, SegmentMoE):
        return select(logits, ffn.router_spec)
    return Routing(logits, logits.softmax(-1), everyone(logits))
