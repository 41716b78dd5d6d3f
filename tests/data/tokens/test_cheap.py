"""What is read of large encoded text is what is needed of it."""

import tracemalloc
from contextlib import contextmanager

import numpy as np
import pytest

from bam_lab.data.tokens import tfidf
from bam_lab.data.tokens.encode import DOCUMENT, documents, stream, token_counts
from bam_lab.data.tokens.heldout import windows
from tests.data.random_tokens import write_domain, write_manifest

MB = 1 << 20


@contextmanager
def at_most(size):
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()


def sparse(path, count, dtype):
    """Make an array on disk that takes no room there until it is written."""
    return np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(count,))


def test_windows_of_large_text_read_its_beginning(tmp_path):
    """A gigabyte of tokens and of index; they take 1 MB."""
    text = sparse(tmp_path / "law.test.npy", 500_000_000, "<u2")
    index = sparse(tmp_path / "law.test.documents.npy", 30_000_000, DOCUMENT)
    text[:100_000] = 7
    index["length"][:10_000] = 9
    write_manifest(tmp_path, ["s"])
    with at_most(4 * MB):
        made = windows(tmp_path, "law", "test", 32, 50_000)
    assert made.length.sum() == 49_995


@pytest.mark.parametrize("max_tokens", [1, 300, 12_345, 10**9])
def test_the_first_documents_are_those_of_the_whole_index(tmp_path, max_tokens):
    """Empty documents too, and many more than are read at once."""
    lengths = np.random.default_rng(0).integers(0, 4, 20_000)
    lengths[:9000] = 0
    write_domain(tmp_path, "law", lengths, np.zeros(len(lengths)), split="test")
    write_manifest(tmp_path, ["s"])
    count = max(int((np.cumsum(lengths) <= max_tokens).sum()), 1)
    assert windows(tmp_path, "law", "test", 16, max_tokens).length.tolist() == list(lengths[:count])


def test_counting_and_tfidf_copy_no_whole_array(tmp_path):
    tokens = sparse(tmp_path / "law.train.npy", 8_000_000, "<u2")
    tokens[1::2] = 3
    index = np.zeros(8, dtype=DOCUMENT)
    index["start"], index["length"] = np.arange(8) * 1_000_000, 999_999
    np.save(tmp_path / "law.train.documents.npy", index)
    write_manifest(tmp_path, ["s"], ["law"])
    with at_most(12 * MB):  # 64 MB as int64
        counts = token_counts(tmp_path, "train")
    assert counts[[0, 3]].tolist() == [4_000_000, 4_000_000] and counts.sum() == 8_000_000
    with at_most(40 * MB):  # unique sorts one document's tokens
        tfidf.statistics(tmp_path, [{"law": 1.0}])
    assert isinstance(documents(tmp_path, "law", "train"), np.memmap)
    assert isinstance(stream(tmp_path, "law", "train"), np.memmap)
