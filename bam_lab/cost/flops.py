"""FLOPs of one token, in three conventions that are never mixed.

- `model`: what the mathematics needs. Causal attention reads (T+1)/2 keys on average; active
  experts only; the LM head counts, the embedding look-up is 0; backward is twice forward; no
  recompute, no optimizer. Matching uses this one.
- `executed`: what our code runs on a CPU, equal to a traced count. Up to `BLOCKED_UP_TO` tokens
  attention goes by blocks of rows, each over the keys up to its end; beyond (and on a GPU) it reads
  all T keys, and its fused backward is 2.5 times its forward because it computes the scores again.
  Experts that run although their gate is zero count too, and the places that fill up Lory's last
  segment.
- `printed`: the paper's own arithmetic (`cost/printed.py`).

A multiplication with its addition is 2 FLOPs. Elementwise work (norms, activations, softmax, gates)
counts 0 in the first two. Lory's merging counts in both: 6 * E * dim * ffn_dim a segment
(arXiv:2405.03133 §3), which is E / segment_len of its FFN.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from bam_lab.cost.layer import LayerExperts, layers_of
from bam_lab.cost.params import ffn_params, key_params, query_params
from bam_lab.cost.printed import printed_forward
from bam_lab.spec.experts import shape_of
from bam_lab.spec.methods import BAMMethod, BTMMethod, DenseMethod, MethodSpec
from bam_lab.spec.model import ModelSpec

BLOCK = 64
BLOCKED_UP_TO = 1024
"""Both as `model/causal_attention.py` has them; a test compares."""


@dataclass(frozen=True)
class FlopCount:
    """Hold the FLOPs of one token (mean over a sequence); `printed_forward` is over all layers.

    Counts are whole numbers, rounded where the mean over a sequence is not.
    """

    model_forward: int
    model_training: int
    executed_forward: int
    executed_training: int
    printed_forward: int


def per_token(model: ModelSpec, method: MethodSpec, num_experts: int, seq_len: int) -> FlopCount:
    """Count the FLOPs of one token of a sequence of `seq_len` tokens."""
    if isinstance(method, BTMMethod):
        return _ensemble(model, method, num_experts, seq_len)
    model = shape_of(method, model)
    needed = layers_of(method, num_experts, model.num_layers)
    run = [_executed_experts(method, experts) for experts in needed]
    queries = model.num_heads * model.head_dim
    # 2 products (scores, weighted values) x 2 FLOPs x (T+1)/2 keys.
    causal = sum(experts.query_active for experts in needed) * queries * 2 * (seq_len + 1)
    forward, backward = _executed_keys(seq_len)
    reads = sum(experts.query_active for experts in run) * queries * 2
    needed_products = _products(model, needed, num_experts, seq_len, filling=False)
    run_products = _products(model, run, num_experts, seq_len, filling=True)
    return FlopCount(
        model_forward=round(needed_products + causal),
        model_training=round(3 * (needed_products + causal)),
        executed_forward=round(run_products) + round(reads * forward),
        executed_training=round(3 * run_products) + round(reads * (forward + backward)),
        printed_forward=printed_forward(model, method, num_experts, seq_len),
    )


def _ensemble(model: ModelSpec, method: BTMMethod, num_experts: int, seq_len: int) -> FlopCount:
    """Count dense models side by side, of whose LM heads `top_k` run; nothing is trained."""
    one = per_token(model, DenseMethod(method="dense"), 1, seq_len)
    saved = (num_experts - method.top_k) * 2 * model.dim * model.vocab_size
    return FlopCount(
        model_forward=num_experts * one.model_forward - saved,
        model_training=0,
        executed_forward=num_experts * one.executed_forward - saved,
        executed_training=0,
        printed_forward=num_experts * one.printed_forward,
    )


def _products(
    model: ModelSpec, layers: Sequence[LayerExperts], num_experts: int, seq_len: int, filling: bool
) -> Fraction:
    """Count the forward FLOPs of all weight products, LM head included.

    `filling` counts the places that fill a last segment as well.
    """
    total = Fraction(model.dim * model.vocab_size)
    for experts in layers:
        segment = min(experts.segment_len, seq_len)
        decisions = Fraction(-(-seq_len // segment), seq_len) if segment else Fraction(1)
        places = decisions * segment if segment and filling else 1
        total += experts.query_active * query_params(model)
        total += experts.key * key_params(model)
        total += experts.ffn_active * ffn_params(model) * places
        total += experts.routers * model.dim * num_experts * decisions
        total += experts.ffn * ffn_params(model) * decisions if segment else 0
    return 2 * total


def _executed_experts(method: MethodSpec, needed: LayerExperts) -> LayerExperts:
    """Return the modules that really run.

    With keys and values per expert, top-k attention takes the soft path (`model/attention.py`).
    """
    if isinstance(method, BAMMethod) and method.kv == "per_expert":
        return replace(needed, query_active=needed.query)
    return needed


def _executed_keys(seq_len: int) -> tuple[float, float]:
    """Return how many keys a token reads, over all attention products of forward and backward."""
    if seq_len > BLOCKED_UP_TO:
        return 2 * seq_len, 5 * seq_len
    return 2 * kept_keys(seq_len), 4 * kept_keys(seq_len)


def kept_keys(seq_len: int) -> float:
    """Return for how many keys a token's attention probabilities are kept for the backward."""
    if seq_len > BLOCKED_UP_TO:
        return 0.0
    starts = range(0, seq_len, BLOCK)
    blocks = ((start, min(start + BLOCK, seq_len)) for start in starts)
    return sum((end - start) * end for start, end in blocks) / seq_len
