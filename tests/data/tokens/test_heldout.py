"""Held-out windows: every token scored exactly once, documents recoverable."""

import numpy as np
import pytest

from bam_lab.data.tokens import encode as tokens
from bam_lab.data.tokens.heldout import UNSCORED, windows
from bam_lab.errors import InputError

DOMAINS = ("code", "general", "law", "math")


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("seq_len", [16, 32, 1000])
@pytest.mark.parametrize("max_tokens", [1, 500, 10**9])
def test_every_token_once(tokens_dir, domain, seq_len, max_tokens):
    made = windows(tokens_dir, domain, "test", seq_len, max_tokens)
    index = tokens.documents(tokens_dir, domain, "test")
    text = tokens.stream(tokens_dir, domain, "test")
    assert made.tokens.shape == (len(made.document), seq_len + 1)
    assert made.document.shape[1] == seq_len
    targets, owner = made.tokens[:, 1:].ravel(), made.document.ravel()
    for number, entry in enumerate(index[: len(made.length)]):
        expected = text[entry["start"] : entry["start"] + entry["length"]]
        assert np.array_equal(targets[owner == number], expected)
        assert made.length[number] == entry["length"]
        assert made.bytes[number] == entry["bytes"]
    assert set(targets[owner == UNSCORED].tolist()) <= {0}
    assert (owner != UNSCORED).sum() == made.length.sum()
    assert len(made.length) == 1 or made.length.sum() <= max_tokens
    if max_tokens == 10**9:
        assert len(made.length) == len(index)


def test_inputs_are_what_stands_before(tokens_dir):
    made = windows(tokens_dir, "law", "valid", 16, 10**9)
    assert made.tokens[0, 0] == 0
    assert np.array_equal(made.tokens[1:, 0], made.tokens[:-1, -1])


def test_sums_are_a_document_and_in_double_precision(tokens_dir):
    made = windows(tokens_dir, "math", "test", 16, 10**9)
    nats = np.random.default_rng(0).random(made.document.shape, dtype=np.float32)
    sums = made.per_document(nats)
    assert sums.dtype == np.float64
    for number in range(len(made.length)):
        assert sums[number] == pytest.approx(nats[made.document == number].sum(dtype=np.float64))
    assert made.per_document(np.ones_like(nats)).tolist() == made.length.tolist()


def test_sources_are_named(tokens_dir):
    assert set(windows(tokens_dir, "law", "test", 16, 10**9).source) == {"contracts", "statutes"}


def test_nothing_held_out_is_said(tokens_dir, tmp_path):
    for path in tokens_dir.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    np.save(tmp_path / "law.test.documents.npy", np.zeros(0, dtype=tokens.DOCUMENT))
    with pytest.raises(InputError, match="law must hold out documents in test, got none"):
        windows(tmp_path, "law", "test", 16, 100)
