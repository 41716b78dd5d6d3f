"""Tf-idf statistics against sums written out by hand, and scikit-learn's rule for idf."""

import math

import pytest

from bam_lab.data.tokens.tfidf import statistics
from tests.data.small_tokens import write_tokens


@pytest.fixture
def tokens_dir(tmp_path):
    return write_tokens(tmp_path)


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
