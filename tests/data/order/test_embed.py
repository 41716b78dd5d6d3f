import sys

import numpy as np
import pytest

from bam_lab.data.order.embed import tfidf_svd, unit
from bam_lab.data.order.encoder import encoder_digest
from bam_lab.errors import InputError

TEXTS = [
    "the cat sat on the mat",
    "a cat and a mat and a cat",
    "the court shall hear the case",
    "the court shall decide the case shall it not",
    "x = y + z",
]


def plain(texts, dimensions):
    """Weigh words by hand and decompose without chance."""
    found = [[w for w in text.lower().split() if len(w) > 1 and w.isalpha()] for text in texts]
    words = sorted({word for text in found for word in text})
    counts = np.array([[text.count(word) for word in words] for text in found], dtype=float)
    idf = np.log((1 + len(texts)) / (1 + (counts > 0).sum(axis=0))) + 1
    weights = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0) * idf
    lengths = np.linalg.norm(weights, axis=1, keepdims=True)
    weights = np.divide(weights, lengths, out=np.zeros_like(weights), where=lengths > 0)
    left, singular, _ = np.linalg.svd(weights, full_matrices=False)
    return unit((left * singular)[:, :dimensions])


@pytest.mark.parametrize("dimensions", [2, 100])
def test_tfidf_svd_gives_the_similarities_of_the_plain_way(dimensions):
    vectors = tfidf_svd(iter(TEXTS), dimensions, rng_seed=0)
    assert vectors.dtype == np.float32
    expected = plain(TEXTS, dimensions)
    np.testing.assert_allclose(
        vectors[:4] @ vectors[:4].T, expected[:4] @ expected[:4].T, atol=1e-5
    )
    assert np.abs(vectors[:4] @ vectors[:4].T).max() > 0.5


def test_a_text_without_words_has_a_vector_of_zeros():
    vectors = tfidf_svd(TEXTS, 100, 0)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 1, 1, 1, 0], atol=1e-6)
    assert not tfidf_svd(["+ -", "="], 5, 0).any()
    assert tfidf_svd(["one text"], 5, 0).shape == (1, 1)


def test_the_same_texts_give_the_same_bits():
    assert tfidf_svd(TEXTS, 3, 7).tobytes() == tfidf_svd(TEXTS, 3, 7).tobytes()


def test_missing_package_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    with pytest.raises(InputError, match=r"pip install 'bam-lab\[data\]'"):
        tfidf_svd(TEXTS, 3, 0)


def test_an_encoder_is_known_by_its_content(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_text("weights")
    (second / ".cache").write_text("of no matter")
    assert encoder_digest(first) == encoder_digest(second)
    (second / "model.safetensors").write_text("other weights")
    assert encoder_digest(first) != encoder_digest(second)


def test_a_missing_folder_is_told(tmp_path):
    with pytest.raises(
        InputError, match=r"must be tfidf_svd, minilm or the folder .* got '.*none'"
    ):
        encoder_digest(tmp_path / "none")
