"""Tf-idf statistics against sums written out by hand, and scikit-learn's rule for idf."""

import math

import numpy as np
import pytest

from bam_lab.data.tfidf import statistics
from bam_lab.data.tokens import DOCUMENT
from bam_lab.record.files import write_json

END = 0
TEXTS = {"law": [[1, 1, 2], [2, 3]], "code": [[4], []]}


@pytest.fixture
def tokens_dir(tmp_path):
    for domain, texts in TEXTS.items():
        starts = np.cumsum([0, *(len(text) + 1 for text in texts)])[:-1]
        index = [(start, len(text), 9, 0) for start, text in zip(starts, texts, strict=True)]
        stream = [token for text in texts for token in (*text, END)]
        np.save(tmp_path / f"{domain}.train.npy", np.array(stream, dtype="<u2"))
        np.save(tmp_path / f"{domain}.train.documents.npy", np.array(index, dtype=DOCUMENT))
    manifest = {"digest": "", "vocab_size": 5, "end_of_text": END, "sources": ["s"], "tokens": {}}
    write_json(tmp_path / "tokens.json", manifest)
    return tmp_path


def test_by_hand(tokens_dir):
    idf, centroids = statistics(
        tokens_dir, [{"law": 1.0}, {"code": 1.0}, {"law": 0.25, "code": 0.75}]
    )
    once, twice = math.log(4 / 2) + 1, math.log(4 / 3) + 1  # of three documents that hold tokens
    assert idf == pytest.approx([math.log(4) + 1, once, twice, once, once])
    first, second = math.hypot(2 * once, twice), math.hypot(twice, once)
    law = [0, once / first, (twice / first + twice / second) / 2, once / second / 2, 0]
    assert centroids[0] == pytest.approx(law)
    assert centroids[1] == pytest.approx([0, 0, 0, 0, 1])
    assert centroids[2] == pytest.approx(0.25 * centroids[0] + 0.75 * centroids[1])
