"""Held-out scores against sums written out by hand."""

import math

import numpy as np
import pytest
import torch

from bam_lab.data.tokens.encode import DOCUMENT
from bam_lab.evaluate.heldout import domain_nats, score
from bam_lab.record.files import write_json
from tests.model.cases import DENSE, METHODS, model_of
from tests.model.test_ensemble import btm, ensemble_of

END = 0
DOCUMENTS = {"law": [(30, 0, 90), (100, 1, 250), (7, 0, 11)], "code": [(55, 2, 60)]}


@pytest.fixture
def tokens_dir(tmp_path):
    """Write encoded text of two domains: (tokens, source, bytes) a document."""
    rng = np.random.default_rng(0)
    for domain, documents in DOCUMENTS.items():
        pieces, index, at = [], [], 0
        for length, source, size in documents:
            pieces.append(np.append(rng.integers(1, 61, length), END))
            index.append((at, length, size, source))
            at += length + 1
        np.save(tmp_path / f"{domain}.test.npy", np.concatenate(pieces).astype("<u2"))
        np.save(tmp_path / f"{domain}.test.documents.npy", np.array(index, dtype=DOCUMENT))
    manifest = {
        "digest": "",
        "vocab_size": 61,
        "end_of_text": END,
        "sources": ["books", "courts", "wheels"],
        "tokens": {},
    }
    write_json(tmp_path / "tokens.json", manifest)
    return tmp_path


def scored(model, tokens_dir, seq_len=150, max_tokens=1000, precision="float32"):
    return score(model, tokens_dir, ["law", "code"], "test", seq_len, max_tokens, precision)


def value(rows, domain, source, metric):
    (found,) = (
        row["value"]
        for row in rows
        if (row["domain"], row["source"], row["metric"]) == (domain, source, metric)
    )
    return found


def test_every_token_once(tokens_dir):
    """One window holds all: nats of all targets but end-of-text, from one forward pass."""
    model = model_of(DENSE)
    rows, documents = scored(model, tokens_dir)
    text = np.load(tokens_dir / "law.test.npy").astype(np.int64)
    stream = torch.from_numpy(np.append(END, text))[None]
    logits = model.logits(model(stream[:, :-1]).hidden)
    nats = -logits.log_softmax(-1).gather(-1, stream[:, 1:, None])[0, :, 0].detach().numpy()
    lengths = [30, 100, 7]
    starts = np.cumsum([0, 31, 101])
    wanted = [nats[a : a + n].sum() for a, n in zip(starts, lengths, strict=True)]
    law = [row for row in documents if row["domain"] == "law"]
    assert [row["nats"] for row in law] == pytest.approx(wanted, rel=1e-5)
    assert [row["tokens"] for row in law] == lengths
    assert [row["bytes"] for row in law] == [90, 250, 11]
    assert [row["source"] for row in law] == ["books", "courts", "books"]
    total = sum(wanted)
    assert value(rows, "law", "*", "nll") == pytest.approx(total / 137)
    assert value(rows, "law", "*", "perplexity") == pytest.approx(math.exp(total / 137))
    assert value(rows, "law", "*", "bits_per_byte") == pytest.approx(total / math.log(2) / 351)
    assert value(rows, "law", "*", "tokens") == 137
    assert value(rows, "law", "*", "bytes") == 351
    books = wanted[0] + wanted[2]
    assert value(rows, "law", "books", "nll") == pytest.approx(books / 37)
    assert value(rows, "law", "courts", "bytes") == 250
    assert domain_nats(model, tokens_dir, ["law"], "test", 150, 1000, "float32") == {
        "law": pytest.approx(total / 137)
    }


def test_rows_have_the_stores_columns(tokens_dir):
    rows, documents = scored(model_of(DENSE), tokens_dir)
    columns = {"kind", "domain", "source", "split", "metric", "context", "unit", "value"}
    assert all(set(row) == columns for row in rows)
    names = {"domain", "source", "split", "document", "nats", "tokens", "bytes"}
    assert all(set(row) == names for row in documents)
    assert {row["source"] for row in rows if row["domain"] == "code"} == {"*", "wheels"}


@pytest.mark.parametrize("method", ["btx-top-1", "bam-shared-soft"])
def test_windows_change_context_only(tokens_dir, method):
    """Short windows score the same tokens; their number and bytes do not move."""
    model = model_of(METHODS[method])
    long, _ = scored(model, tokens_dir)
    short, _ = scored(model, tokens_dir, seq_len=16)
    for metric in ("tokens", "bytes"):
        assert value(short, "law", "*", metric) == value(long, "law", "*", metric)
    assert value(short, "law", "*", "nll") != value(long, "law", "*", "nll")


def test_max_tokens_takes_whole_documents(tokens_dir):
    rows, documents = scored(model_of(DENSE), tokens_dir, max_tokens=60)
    assert value(rows, "law", "*", "tokens") == 30
    assert len([row for row in documents if row["domain"] == "law"]) == 1


def test_bf16_is_near(tokens_dir):
    model = model_of(DENSE)
    exact, _ = scored(model, tokens_dir)
    reduced, _ = scored(model, tokens_dir, precision="bf16-mixed")
    for domain in ("law", "code"):
        want, got = (value(rows, domain, "*", "nll") for rows in (exact, reduced))
        assert got == pytest.approx(want, rel=5e-3)
        assert got != want


def test_an_ensemble_is_scored_by_its_mixture(tokens_dir):
    model = ensemble_of(btm(2))
    rows, documents = scored(model, tokens_dir)
    text = np.load(tokens_dir / "code.test.npy").astype(np.int64)
    stream = torch.from_numpy(np.append(END, text))[None]
    nats = model.token_nats(stream[:, :-1], stream[:, 1:])[0, :55]  # end-of-text is not scored
    (code,) = [row for row in documents if row["domain"] == "code"]
    assert code["nats"] == pytest.approx(float(nats.sum()), rel=1e-5)
    assert value(rows, "code", "*", "nll") == pytest.approx(float(nats.mean()), rel=1e-5)
