"""Rows of one length: each a part of one document, no two alike."""

import numpy as np
import pytest

from bam_lab.errors import InputError
from bam_lab.evaluate.probes.texts import switched, texts
from tests.evaluate.probes.probe_text import random_text, write_tokens


def parts(tokens_dir, domain, length, most):
    (found,) = texts(tokens_dir, [domain], "test", length, most)
    stream = np.load(tokens_dir / f"{domain}.test.npy").astype(np.int64)
    index = np.load(tokens_dir / f"{domain}.test.documents.npy")
    return found, [stream[row["start"] :][: row["length"]] for row in index]


def test_first_rows_of_all_documents_come_first(tmp_path):
    found, documents = parts(write_tokens(tmp_path), "law", 20, 99)
    wanted = [(0, 0), (1, 0), (3, 0), (1, 1), (3, 1), (1, 2), (3, 2), (1, 3), (1, 4)]
    assert found.document.tolist() == [i for i, _ in wanted]
    for row, (document, number) in zip(found.tokens, wanted, strict=True):
        assert row.tolist() == documents[document][20 * number : 20 * number + 20].tolist()


def test_no_more_than_are_asked_for(tmp_path):
    tokens_dir = write_tokens(tmp_path)
    for most in (1, 3, 5):
        found, _ = parts(tokens_dir, "law", 20, most)
        assert found.tokens.shape == (most, 20) and found.tokens.dtype == np.int64
    assert parts(tokens_dir, "law", 20, 5)[0].document.tolist() == [0, 1, 3, 1, 3]


def test_domains_in_their_order(tmp_path):
    found = texts(write_tokens(tmp_path), ["code", "law"], "test", 50, 2)
    assert [(own.domain, own.prompt_domain, len(own.tokens)) for own in found] == [
        ("code", "code", 2),
        ("law", "law", 2),
    ]


def test_documents_that_are_too_short(tmp_path):
    message = "code must hold out a document of 91 tokens or more in test, got none above 90"
    with pytest.raises(InputError, match=message):
        texts(write_tokens(tmp_path), ["law", "code"], "test", 91, 4)


def test_switched():
    found = [random_text("a", rows=2, seed=1), random_text("b", rows=3, seed=2)]
    first, second = switched(found, 20)
    assert (first.prompt_domain, first.domain) == ("b", "a")
    assert (second.prompt_domain, second.domain) == ("a", "b")
    a, b = (own.tokens for own in found)
    assert (first.tokens[:, 20:] == a[:, 20:]).all()
    assert (first.tokens[:, :20] == b[:2, :20]).all()
    assert (second.tokens[:, :20] == a[[0, 1, 0], :20]).all()
    assert (second.tokens[:, 20:] == b[:, 20:]).all()
