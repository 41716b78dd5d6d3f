"""Parity with transformers, float32: logits, loss and the gradient of every weight.

Their model is drawn at random (norms too, so that an unused weight shows), ours holds its weights.
Not covered, because we have no such thing: sliding windows shorter than the text (Mistral), biases
(GPT-J's and GPT-2's are zero here), norms on queries and keys (OLMoE's are taken out of the
reference), a factor on the logits (Cohere's is 1 here), rotary positions on part of a head (GPT-J).
"""

import pytest
import torch
from torch import nn
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTJConfig,
    GPTJForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OlmoeConfig,
    OlmoeForCausalLM,
)
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from bam_lab.hf.names import COHERE, GPT_J, LLAMA, MISTRAL, MIXTRAL, OLMOE, Family, from_hf, to_hf
from bam_lab.model.checkpoint import build
from bam_lab.model.losses import next_token_loss
from bam_lab.model.transformer import Transformer
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.model import ModelSpec
from tests.model.cases import DENSE, EXPERTS, btx, shape, sparse_upcycling, text, top_k

LENGTH = 140


def config_of(spec: ModelSpec) -> dict[str, object]:
    return {
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.dim,
        "intermediate_size": spec.ffn_dim,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "rms_norm_eps": spec.norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": spec.rope_theta},
        "max_position_embeddings": spec.max_seq_len,
        "tie_word_embeddings": spec.tie_embeddings,
        "attn_implementation": "eager",
        "pad_token_id": None,  # a padding token would get no gradient
        "bos_token_id": None,
        "eos_token_id": None,
    }


def randomised(reference: nn.Module) -> nn.Module:
    """Draw every weight; biases, which ours has not, are zero."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in reference.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        else:
            nn.init.normal_(parameter, std=0.2, generator=generator)
            parameter.data += 1.0 * (parameter.ndim == 1)
    return reference.eval()


def converted(
    reference: nn.Module, family: Family, spec: ModelSpec, method: MethodSpec = DENSE
) -> Transformer:
    """Return our model of their weights; no weight of either may be left over."""
    state = {name: p.detach() for name, p in reference.named_parameters()}
    weights = {name: tensor for name, tensor in state.items() if not name.endswith("bias")}
    ours = from_hf(weights, family, spec)
    back = to_hf(ours, family, spec)
    assert back.keys() == weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(back[name], tensor), name
    return build(spec, method, 1 if method == DENSE else EXPERTS, ours)


def assert_same(model: Transformer, reference: nn.Module, family: Family | None) -> None:
    """Compare logits, loss and gradients at the default tolerance; without a family, GPT-2's."""
    tokens = text(length=LENGTH)
    torch.testing.assert_close(model.logits(model(tokens).hidden), reference(tokens).logits)
    loss = next_token_loss(model(tokens[:, :-1]).hidden, model.lm_head_weight, tokens[:, 1:])
    wanted = reference(tokens, labels=tokens).loss
    torch.testing.assert_close(loss, wanted)
    loss.backward()
    wanted.backward()
    gradients = {n: p.grad for n, p in reference.named_parameters()}
    theirs = from_hf(gradients, family, model.spec) if family else from_gpt2(gradients, model.spec)
    for name, parameter in model.named_parameters():
        assert parameter.grad.norm() > 0, name
        torch.testing.assert_close(parameter.grad, theirs[name], msg=lambda m, n=name: f"{n}: {m}")


def test_llama():
    """The serial dense model."""
    spec = shape("serial")
    reference = randomised(LlamaForCausalLM(LlamaConfig(**config_of(spec))))
    assert_same(converted(reference, LLAMA, spec), reference, LLAMA)


def mistral(spec: ModelSpec, window: int | None) -> nn.Module:
    config = MistralConfig(**config_of(spec), sliding_window=window)
    return randomised(MistralForCausalLM(config))


@pytest.mark.parametrize("window", [None, LENGTH])
def test_mistral(window):
    """Two query heads a key head; a window as long as the text is none."""
    spec = shape("serial")
    reference = mistral(spec, window)
    assert_same(converted(reference, MISTRAL, spec), reference, MISTRAL)


def test_a_shorter_window_is_another_model():
    spec, tokens = shape("serial"), text(length=LENGTH)
    full, short = (mistral(spec, window)(tokens).logits for window in (None, LENGTH - 10))
    torch.testing.assert_close(short[:, : LENGTH - 10], full[:, : LENGTH - 10])
    assert not torch.allclose(short, full)


def cohere(spec: ModelSpec) -> nn.Module:
    config = CohereConfig(**config_of(spec), layer_norm_eps=spec.norm_eps, logit_scale=1.0)
    return CohereForCausalLM(config)


def test_cohere():
    """The parallel block, LayerNorm, tied embeddings, neighbouring dimensions rotated."""
    spec = shape("parallel", norm="layer", tie_embeddings=True)
    reference = randomised(cohere(spec))
    assert_same(converted(reference, COHERE, spec), reference, COHERE)


def test_parallel_dense():
    """Our parallel block: Cohere's with Llama's norms and an LM head of its own."""
    spec = shape("parallel")
    reference = cohere(spec)
    reference.model.norm = LlamaRMSNorm(spec.dim, spec.norm_eps)
    for layer in reference.model.layers:
        layer.input_layernorm = LlamaRMSNorm(spec.dim, spec.norm_eps)
    randomised(reference)
    assert_same(converted(reference, COHERE, spec), reference, COHERE)


def test_gpt_j():
    """The parallel block, an FFN without a gate, LayerNorm; all of a head is rotated."""
    spec = shape("gelu", dim=32, num_kv_heads=4)
    config = GPTJConfig(
        vocab_size=spec.vocab_size,
        n_positions=spec.max_seq_len,
        n_embd=spec.dim,
        n_layer=spec.num_layers,
        n_head=spec.num_heads,
        n_inner=spec.ffn_dim,
        rotary_dim=spec.head_dim,
        activation_function="gelu_new",
        layer_norm_epsilon=spec.norm_eps,
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
    reference = randomised(GPTJForCausalLM(config))
    assert_same(converted(reference, GPT_J, spec), reference, GPT_J)


def from_gpt2(state, spec: ModelSpec) -> dict[str, torch.Tensor]:
    """Return ours of GPT-2's, whose matrices stand (in, out) and whose projections are joined."""
    found = {
        "embedding": state["transformer.wte.weight"],
        "position": state["transformer.wpe.weight"],
        "final_norm": state["transformer.ln_f.weight"],
    }
    for i in range(spec.num_layers):
        theirs = f"transformer.h.{i}"
        query, key, value = state[f"{theirs}.attn.c_attn.weight"].T.chunk(3)
        layer = {
            "attention_norm": state[f"{theirs}.ln_1.weight"],
            "ffn_norm": state[f"{theirs}.ln_2.weight"],
            "attention.query": query,
            "attention.key": key,
            "attention.value": value,
            "attention.output": state[f"{theirs}.attn.c_proj.weight"].T,
            "ffn.up": state[f"{theirs}.mlp.c_fc.weight"].T,
            "ffn.down": state[f"{theirs}.mlp.c_proj.weight"].T,
        }
        found |= {f"layers.{i}.{name}": tensor for name, tensor in layer.items()}
    return found


def test_gpt2():
    """Learned positions; the serial block with LayerNorm and an FFN without a gate."""
    sizes = {"dim": 32, "num_kv_heads": 4, "tie_embeddings": True}
    spec = shape("layer-norm", positions="learned", activation="gelu", **sizes)
    config = GPT2Config(
        vocab_size=spec.vocab_size,
        n_positions=spec.max_seq_len,
        n_embd=spec.dim,
        n_layer=spec.num_layers,
        n_head=spec.num_heads,
        n_inner=spec.ffn_dim,
        activation_function="gelu_new",
        layer_norm_epsilon=spec.norm_eps,
        attn_implementation="eager",
    )
    reference = randomised(GPT2LMHeadModel(config))
    weights = {n: p.detach() for n, p in reference.named_parameters() if not n.endswith("bias")}
    ours = from_gpt2(weights, spec)
    assert sum(t.numel() for t in ours.values()) == sum(t.numel() for t in weights.values())
    assert_same(build(spec, DENSE, 1, ours), reference, None)


def test_mixtral():
    """Top-2, renormalised: BTX's order."""
    spec, method = shape("serial"), btx(top_k(2, renormalize=True))
    config = MixtralConfig(**config_of(spec), num_local_experts=EXPERTS, num_experts_per_tok=2)
    reference = randomised(MixtralForCausalLM(config))
    assert_same(converted(reference, MIXTRAL, spec, method), reference, MIXTRAL)


@pytest.mark.parametrize("k", [1, 2])
def test_olmoe(k):
    """Softmax, then top-k, the rest of the probability lost: BAM's and Sparse Upcycling's order."""
    spec, method = shape("serial"), sparse_upcycling("all", top_k(k))
    config = OlmoeConfig(
        **config_of(spec), num_experts=EXPERTS, num_experts_per_tok=k, norm_topk_prob=False
    )
    reference = OlmoeForCausalLM(config)
    for layer in reference.model.layers:
        layer.self_attn.q_norm = layer.self_attn.k_norm = nn.Identity()
    randomised(reference)
    assert_same(converted(reference, OLMOE, spec, method), reference, OLMOE)
