"""FLOPs of training a branch through adapters of low rank, as `hf/lora.py` does.

- `model`: frozen weights need no gradient of their own, so their products run twice and not three
  times; an adapter of a matrix out x in adds rank * (out + in) products a token, three times;
  causal attention runs three times; the LM head is frozen.
- `executed`: the adapter is added to the matrix (W + scale * B A, once a step), so that an adapted
  matrix is trained in full before its gradient is handed on to B and A; nothing is saved there. In
  the first layer no gradient goes further down than the adapters.
"""

from collections.abc import Sequence
from fractions import Fraction

from bam_lab.cost.flops import BLOCKED_UP_TO, FlopCount, per_token, read_keys
from bam_lab.cost.layer import DENSE_LAYER
from bam_lab.cost.params import ffn_params, key_params, query_params
from bam_lab.spec.branches import LoRASpec
from bam_lab.spec.methods import DenseMethod
from bam_lab.spec.model import ModelSpec

DENSE = DenseMethod(method="dense")


def lora_per_token(model: ModelSpec, lora: LoRASpec, seq_len: int, batch_tokens: int) -> FlopCount:
    """Count the FLOPs of one training token in a batch of `batch_tokens`.

    A forward pass is the dense model's: a trained branch has its adapters merged.
    """
    dense = per_token(model, DENSE, 1, seq_len)
    attention, ffn = 2 * (query_params(model) + key_params(model)), 2 * ffn_params(model)
    head = 2 * model.dim * model.vocab_size
    layers = model.num_layers
    causal = model.num_heads * model.head_dim * 2 * (seq_len + 1)
    adapters = layers * sum(
        2 * lora.rank * (rows + columns) for rows, columns in adapted_shapes(model, lora)
    )
    weights = layers * (attention + ffn) + head
    return FlopCount(
        model_forward=dense.model_forward,
        model_training=2 * weights + 3 * layers * causal + 3 * adapters,
        executed_forward=dense.executed_forward,
        executed_training=_executed(model, lora, seq_len, batch_tokens),
        printed_forward=dense.printed_forward,
    )


def lora_params(model: ModelSpec, lora: LoRASpec) -> int:
    """Count the parameters of all adapters: what such a branch trains."""
    sides = sum(rows + columns for rows, columns in adapted_shapes(model, lora))
    return model.num_layers * lora.rank * sides


def adapted_shapes(model: ModelSpec, lora: LoRASpec) -> Sequence[tuple[int, int]]:
    """Return (out, in) of each adapted matrix of one layer."""
    queries, keys = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    dim, hidden = model.dim, model.ffn_dim
    shapes: list[tuple[int, int]] = []
    if "attention" in lora.targets:
        shapes += [(queries, dim), (keys, dim), (keys, dim), (dim, queries)]
    if "ffn" in lora.targets:
        shapes += [(hidden, dim)] * (2 if model.activation == "swiglu" else 1) + [(dim, hidden)]
    return shapes


def _executed(model: ModelSpec, lora: LoRASpec, seq_len: int, batch_tokens: int) -> int:
    queries = model.num_heads * model.head_dim
    backward_products = 4 if seq_len <= BLOCKED_UP_TO else 5
    own_attention, own_ffn = "attention" in lora.targets, "ffn" in lora.targets
    inner = 2 * model.dim * queries  # the output projection
    outer = 2 * (query_params(model) + key_params(model)) - inner
    down = 2 * model.dim * model.ffn_dim
    up = 2 * ffn_params(model) - down
    products, reads = Fraction(2 * 2 * model.dim * model.vocab_size), 0
    for layer in range(model.num_layers):
        below = layer > 0  # whether a gradient goes on to the layer's input
        ffn_below = below or (own_attention and model.block == "serial")
        products += outer * (1 + own_attention + below)
        products += inner * (1 + own_attention + (own_attention or below))
        products += up * (1 + own_ffn + ffn_below) + down * (1 + own_ffn + (own_ffn or ffn_below))
        reads += 2 + (backward_products if own_attention or below else 0)
    added = sum(rows * columns for rows, columns in adapted_shapes(model, lora))
    products += Fraction(6 * lora.rank * added * model.num_layers, batch_tokens)
    return round(products) + round(reads * read_keys(DENSE_LAYER, seq_len) * queries * 2)
