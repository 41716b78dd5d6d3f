"""Parity with transformers: Llama for the dense model, Mixtral for FFN experts, float32."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from bam_lab.model.losses import next_token_loss
from tests.model.cases import DENSE, EXPERTS, btx, model_of, text, top_k

LAYER = {
    "attention_norm": "input_layernorm.weight",
    "ffn_norm": "post_attention_layernorm.weight",
    "attention.query": "self_attn.q_proj.weight",
    "attention.key": "self_attn.k_proj.weight",
    "attention.value": "self_attn.v_proj.weight",
    "attention.output": "self_attn.o_proj.weight",
}
DENSE_FFN = {f"ffn.{name}": f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")}


def config_of(spec):
    return {
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.dim,
        "intermediate_size": spec.ffn_dim,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "rms_norm_eps": spec.norm_eps,
        "rope_theta": spec.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": spec.rope_theta},
        "max_position_embeddings": spec.max_seq_len,
        "tie_word_embeddings": False,
        "attn_implementation": "eager",
    }


def translated(model, layer_names):
    state = model.state_dict()
    found = {
        "model.embed_tokens.weight": state["embedding"],
        "model.norm.weight": state["final_norm"],
        "lm_head.weight": state["lm_head"],
    }
    for i in range(model.spec.num_layers):
        for ours, theirs in layer_names.items():
            found[f"model.layers.{i}.{theirs}"] = state[f"layers.{i}.{ours}"]
    return found


def assert_same(model, reference):
    tokens = text(length=140)
    torch.testing.assert_close(model.logits(model(tokens).hidden), reference(tokens).logits)
    loss = next_token_loss(model(tokens[:, :-1]).hidden, model.lm_head_weight, tokens[:, 1:])
    torch.testing.assert_close(loss, reference(tokens, labels=tokens).loss)


def test_dense_serial_is_llama():
    model = model_of(DENSE, "serial")
    reference = LlamaForCausalLM(LlamaConfig(**config_of(model.spec))).eval()
    missing = reference.load_state_dict(translated(model, LAYER | DENSE_FFN), strict=True)
    assert not missing.missing_keys
    ours, theirs = (sum(p.numel() for p in m.parameters()) for m in (model, reference))
    assert ours == theirs
    assert_same(model, reference)


def test_btx_serial_renormalised_top_2_is_mixtral():
    model = model_of(btx(top_k(2, renormalize=True)), "serial")
    config = MixtralConfig(
        **config_of(model.spec), num_local_experts=EXPERTS, num_experts_per_tok=2
    )
    reference = MixtralForCausalLM(config).eval()
    state = translated(model, LAYER)
    for i in range(model.spec.num_layers):
        ours, theirs = model.layers[i].ffn, f"model.layers.{i}.mlp"
        state[f"{theirs}.gate.weight"] = ours.router
        state[f"{theirs}.experts.gate_up_proj"] = torch.cat((ours.gate, ours.up), dim=1)
        state[f"{theirs}.experts.down_proj"] = ours.down
    reference.load_state_dict(state, strict=True)
    ours, theirs = (sum(p.numel() for p in m.parameters()) for m in (model, reference))
    assert ours == theirs
    assert_same(model, reference)
