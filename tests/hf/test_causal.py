"""A transformers model from disk, as evaluation reads it."""

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from bam_lab.errors import CheckpointError
from bam_lab.evaluate.answering import words_of
from bam_lab.evaluate.likelihood import continuation_nats
from bam_lab.hf.causal import HFCausal, load
from bam_lab.hf.names import LLAMA, to_hf
from bam_lab.hf.reference import llama
from tests.evaluate.harness_cases import model, tokenizer


@pytest.fixture
def folder(tmp_path):
    own = model()
    other = llama(own.spec)
    other.load_state_dict(to_hf(own.state_dict(), LLAMA, own.spec))
    other.save_pretrained(tmp_path)
    theirs = PreTrainedTokenizerFast(tokenizer_object=tokenizer(), eos_token="<|endoftext|>")
    theirs.save_pretrained(tmp_path)
    return tmp_path


def test_a_folder_is_the_model_that_was_written(folder):
    own = model()
    found, theirs, end = load(folder)
    assert (found.vocab_size, found.max_seq_len, end) == (320, 150, 0)
    assert found.device == torch.device("cpu") and not found.model.training
    words = words_of(theirs, end)
    pairs = [(words.encode("kibo da"), words.encode(" mune")), (words.encode("ki"), [5, 6])]
    wanted = continuation_nats(own, pairs, precision="float32")
    for one, other in zip(
        wanted, continuation_nats(found, pairs, precision="float32"), strict=True
    ):
        assert other.nats == pytest.approx(one.nats, rel=1e-5)


def test_what_cannot_be_read(folder, tmp_path):
    with pytest.raises(CheckpointError, match="must be a folder"):
        load(tmp_path / "nowhere")
    torch.save({}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"must hold config.json, model.safetensors and"):
        load(folder)


def test_a_tokenizer_without_an_end(folder):
    PreTrainedTokenizerFast(tokenizer_object=tokenizer()).save_pretrained(folder)
    with pytest.raises(CheckpointError, match=r"end-of-text token \(eos_token\), got none"):
        load(folder)


def test_a_model_that_does_not_say_how_long_it_is():
    class Config:
        vocab_size = 3

    nameless = torch.nn.Linear(1, 1)
    nameless.config = Config()
    with pytest.raises(CheckpointError, match=r"config.json must say how long a row may be"):
        _ = HFCausal(nameless).max_seq_len
