"""FLOPs of one token, in three conventions that are never mixed.

- `model`: what the mathematics needs. Causal attention reads (T+1)/2 keys on average; active
  experts only; the LM head counts, the embedding look-up is 0; backward is twice forward; no
  recompute, no optimizer. Matching uses this one.
- `executed`: what our code runs, equal to a traced count. Attention reads all T keys, its fused
  backward is 2.5 times its forward (it computes the scores again), and what runs on experts whose
  gate is zero counts too.
- `printed`: the paper's own arithmetic (`cost/printed.py`).

A multiplication with its addition is 2 FLOPs. Elementwise work (norms, activations, softmax, gates)
counts 0 in the first two.
"""

from dataclasses import dataclass, replace

from bam_lab.cost.layer import LayerExperts, layer_experts
from bam_lab.cost.params import ffn_params, key_params, query_params
from bam_lab.cost.printed import per_layer
from bam_lab.spec.methods import BAMMethod, MethodSpec
from bam_lab.spec.model import ModelSpec


@dataclass(frozen=True)
class FlopCount:
    """Hold the FLOPs of one token (mean over a sequence); `printed_forward` is over all layers."""

    model_forward: int
    model_training: int
    executed_forward: int
    executed_training: int
    printed_forward: int


def per_token(model: ModelSpec, method: MethodSpec, num_experts: int, seq_len: int) -> FlopCount:
    """Count the FLOPs of one token of a sequence of `seq_len` tokens."""
    needed = layer_experts(method, num_experts)
    run = _executed_experts(method, needed)
    queries = model.num_heads * model.head_dim
    # 2 products (scores, weighted values) x 2 FLOPs x (T+1)/2 keys, and x T keys when executed.
    causal = model.num_layers * needed.query_active * queries * 2 * (seq_len + 1)
    full = model.num_layers * run.query_active * queries * 4 * seq_len
    needed_products = _products(model, needed, num_experts)
    run_products = _products(model, run, num_experts)
    return FlopCount(
        model_forward=needed_products + causal,
        model_training=3 * (needed_products + causal),
        executed_forward=run_products + full,
        executed_training=3 * run_products + full * 7 // 2,
        printed_forward=model.num_layers * per_layer(model, method, num_experts, seq_len).total,
    )


def _products(model: ModelSpec, experts: LayerExperts, num_experts: int) -> int:
    """Count the forward FLOPs of all weight products, LM head included."""
    layer = (
        experts.query_active * query_params(model)
        + experts.key * key_params(model)
        + experts.ffn_active * ffn_params(model)
        + experts.routers * model.dim * num_experts
    )
    return 2 * (model.num_layers * layer + model.dim * model.vocab_size)


def _executed_experts(method: MethodSpec, needed: LayerExperts) -> LayerExperts:
    """Return the modules that really run: every attention expert, whatever its gate."""
    if isinstance(method, BAMMethod):
        return replace(needed, query_active=needed.query)
    return needed
