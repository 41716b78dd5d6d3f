"""The shape of a dense transformer: the seed model's, and so every expert's and mixture's."""

from typing import Annotated, Literal

from pydantic import Field

from bam_lab.spec.base import PositiveFloat, PositiveInt, SchemaVersion, Spec

END_OF_TEXT_ID = 0
"""The token that ends every document; it also stands before a sequence where one is asked for."""


class ModelSpec(Spec):
    """Describe one dense transformer.

    Attributes:
        vocab_size: tokens in the vocabulary, special tokens included.
        dim: width of the residual stream.
        ffn_dim: hidden width of the FFN (BAM's "FFN dimension" counts gate and up together).
        num_kv_heads: key and value heads; equal to `num_heads` for full multi-head attention.
        max_seq_len: tokens of a training sequence, and of a held-out window.
        block: `parallel` (arXiv:2204.02311: attention and FFN read the same normed input) or
            `serial` (Llama: one after the other, two norms).
        tie_embeddings: whether the LM head is the input embedding.
        positions: `rope` (arXiv:2104.09864, all of a head's dimensions) or `learned`: a vector for
            each of the `max_seq_len` places, added to the embedding.
        rope_theta: base of the rotary angles; nothing where positions are learned.
        norm: `rms`, or `layer` (less the mean, a weight and no bias, as Cohere's).
        activation: `swiglu` (gate, up and down), or `gelu` (tanh form, up and down only, as
            GPT-J's), which dense models alone can have.
        cross_document_attention: whether attention reaches over the end-of-text before a token into
            the documents packed before its own. With false a token sees what begins with the last
            end-of-text at or before it; what opens a document is the end-of-text of the one before.
            Positions count through the sequence either way, and FLOPs are counted as if joined: an
            upper bound of what the mathematics needs.
    """

    schema_version: SchemaVersion = Field(alias="schema")
    vocab_size: PositiveInt
    dim: PositiveInt
    num_layers: Annotated[int, Field(gt=0, le=1024)]
    num_heads: PositiveInt
    num_kv_heads: PositiveInt
    head_dim: PositiveInt
    ffn_dim: PositiveInt
    max_seq_len: PositiveInt
    block: Literal["parallel", "serial"]
    tie_embeddings: bool
    positions: Literal["rope", "learned"] = "rope"
    rope_theta: PositiveFloat = 10000.0
    norm: Literal["rms", "layer"] = "rms"
    norm_eps: PositiveFloat = 1e-5
    activation: Literal["swiglu", "gelu"] = "swiglu"
    init_std: PositiveFloat = 0.02
    cross_document_attention: bool = True
