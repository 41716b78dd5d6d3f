"""FLOPs of one token, in three conventions that are never mixed.

- `model`: what the mathematics needs. Causal attention reads (T+1)/2 keys on average; active
  experts only; the LM head counts, the embedding look-up is 0; backward is twice forward, less the
  weight gradients of frozen experts; no recompute, no optimizer. Matching uses this one. Under
  `cross_document_attention: false` it still counts a sequence as one document: an upper bound that
  depends on no text, and the same for every arm. What is executed is the same either way.
- `executed`: what our code runs on a CPU, equal to a traced count. Up to `BLOCKED_UP_TO` tokens
  attention goes by blocks of rows, each over the keys up to its end; beyond (and on a GPU) it reads
  all T keys, and its fused backward is 2.5 times its forward because it computes the scores again.
  Gathered queries (`model/gathered_attention.py`) read keys by where an expert's queries stand:
  counted as if every expert's stood evenly over a sequence, filling included. Experts that run
  although their gate is zero count too, the places that fill up Lory's last segment, and the
  merges that its backward makes again. So do
  choices that a capacity limit drops, although they do not run: how many is the text's doing, and
  a run logs their share. ReLU gates count as many experts as they are driven to; how many are not
  0 is the text's doing too, and the logged sparsity says it.
- `printed`: the paper's own arithmetic (`cost/printed.py`).

A multiplication with its addition is 2 FLOPs. Elementwise work (norms, activations, softmax, gates)
counts 0 in the first two. Lory's merging counts in both: 6 * E * dim * ffn_dim a segment
(arXiv:2405.03133 §3), which is E / segment_len of its FFN.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from bam_lab.cost.layer import LayerExperts, layers_of
from bam_lab.cost.params import expert_params, ffn_params, key_params, query_params
from bam_lab.cost.printed import printed_forward
from bam_lab.cost.segments import ffn_work, places_of
from bam_lab.spec.experts import shape_of
from bam_lab.spec.methods import BTMMethod, DenseMethod, MethodSpec
from bam_lab.spec.model import ModelSpec

BLOCK = 64
BLOCKED_UP_TO = 1024
"""Both as `model/causal_attention.py` has them; a test compares."""

TILE, FILL, KEYS = 64, 16, 64
"""All as `model/gathered_attention.py` has them."""


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
    trained = layers_of(method, num_experts, model.num_layers, "training")
    queries = model.num_heads * model.head_dim
    # 2 products (scores, weighted values) x 2 FLOPs x (T+1)/2 keys.
    places = places_of(method, seq_len)
    a_token = Fraction(places, seq_len)
    causal = sum(experts.query_active for experts in needed) * queries * 2 * (places + 1) * a_token
    # Forward 2 products; backward 4, or 5 where the scores are computed again.
    reads = sum(read_keys(experts, places) for experts in needed) * queries * 2 * places / seq_len
    products_trained = 6 if places <= BLOCKED_UP_TO else 7

    def products(layers: Sequence[LayerExperts], executed: bool) -> Fraction:
        return _products(model, method, layers, num_experts, seq_len, executed)

    model_training = 3 * (products(trained, False) + causal) - _spared(model, trained)
    run_training = 3 * products(trained, True) - _spared(model, trained)
    run_training += _merged_again(model, method, trained, num_experts, seq_len)
    return FlopCount(
        model_forward=round(products(needed, False) + causal),
        model_training=round(model_training),
        executed_forward=round(products(needed, True)) + round(reads * 2),
        executed_training=round(run_training) + round(reads * products_trained),
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
    model: ModelSpec,
    method: MethodSpec,
    layers: Sequence[LayerExperts],
    num_experts: int,
    seq_len: int,
    executed: bool,
) -> Fraction:
    """Count the forward FLOPs of all weight products, LM head included."""
    work, places = ffn_work(method, num_experts, seq_len, executed), places_of(method, seq_len)
    total = Fraction(model.dim * model.vocab_size * seq_len)
    for experts, times in Counter(layers).items():
        one: int | Fraction = experts.query_active * query_params(model) * places
        one += experts.key * key_params(model) * places
        one += experts.ffn_active * expert_params(model, experts) * work.places
        one += experts.shared * ffn_params(model) * places
        one += experts.routers * model.dim * num_experts * work.decisions
        one += experts.ffn * expert_params(model, experts) * work.merges
        total += times * one
    return 2 * total / seq_len


def _merged_again(
    model: ModelSpec,
    method: MethodSpec,
    layers: Sequence[LayerExperts],
    num_experts: int,
    seq_len: int,
) -> Fraction:
    """Count the merges that the backward makes again instead of keeping them."""
    merges = ffn_work(method, num_experts, seq_len, executed=True).merges
    weights = sum(
        times * experts.ffn * expert_params(model, experts)
        for experts, times in Counter(layers).items()
    )
    return Fraction(2 * merges * weights, seq_len)


def _spared(model: ModelSpec, layers: Sequence[LayerExperts]) -> Fraction:
    """Count the products that would give the gradients of frozen weights."""
    total = Fraction(0)
    for experts in layers:
        frozen = experts.frozen
        total += experts.ffn_active * expert_params(model, experts) * ("ffn" in frozen)
        total += experts.query_active * query_params(model) * ("query" in frozen)
        total += experts.key * key_params(model) * ("key" in frozen)
    return 2 * total


def read_keys(experts: LayerExperts, seq_len: int) -> float:
    """Return how many keys the queries of one token read in one product, over all experts."""
    if experts.gathered:
        return _gathered_keys(experts, seq_len)
    return experts.query_active * (kept_keys(seq_len) or seq_len)


def _gathered_keys(experts: LayerExperts, seq_len: int) -> float:
    """Count them for queries that stand evenly over the sequence, alike for all experts."""
    every = Fraction(experts.query, experts.query_active)  # tokens between two queries of an expert
    queries = ceil(seq_len / every)
    total = 0
    for left in range(0, queries, TILE):
        end = min(left + TILE, queries)
        places = -(-(end - left) // FILL) * FILL
        keys = -(-min(ceil(end * every), seq_len) // KEYS) * KEYS
        total += places * min(keys, seq_len)
    return experts.query * total / seq_len


def kept_keys(seq_len: int) -> float:
    """Return for how many keys a token's attention probabilities are kept for the backward."""
    if seq_len > BLOCKED_UP_TO:
        return 0.0
    starts = range(0, seq_len, BLOCK)
    blocks = ((start, min(start + BLOCK, seq_len)) for start in starts)
    return sum((end - start) * end for start, end in blocks) / seq_len
