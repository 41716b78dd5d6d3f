"""Turn documents into unit vectors whose products say how alike two of them are.

The door to scikit-learn. TF-IDF counts words (two letters or more, lower case), 50,000 of them at
most; its vectors are shortened by a randomised singular value decomposition. Nothing is learned
elsewhere and nothing is downloaded, so the same text gives the same vectors.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from bam_lab.errors import InputError

Vectors = NDArray[np.float32]
Embed = Callable[[Iterable[str]], Vectors]
"""Texts -> [N, D] unit vectors in the same order; all zero where a text holds nothing to go by."""

MAX_FEATURES = 50_000
_POWER_ITERATIONS = 4


def tfidf_svd(texts: Iterable[str], dimensions: int, rng_seed: int) -> Vectors:
    """Return the TF-IDF vectors of `texts` in at most `dimensions` directions.

    Term counts are 1 + ln(count), weighted by ln((1 + N) / (1 + N_term)) + 1, and documents scaled
    to length 1 before the decomposition. Texts are read once; held are their sparse counts.

    Raises:
        InputError: scikit-learn is not installed.
    """
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.utils.extmath import randomized_svd
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise InputError(
            "scikit-learn must be installed for embedder: tfidf_svd. "
            "Install it with: pip install 'bam-lab[data]'."
        ) from None
    seen = _Counted(texts)
    vectorizer = TfidfVectorizer(max_features=MAX_FEATURES, sublinear_tf=True, dtype=np.float32)
    try:
        weights = vectorizer.fit_transform(seen)
    except ValueError as error:
        if "empty vocabulary" not in str(error):
            raise
        return np.zeros((seen.count, 1), dtype=np.float32)
    with threadpool_limits(1):  # so that the number of threads changes no bit
        left, singular, _ = randomized_svd(
            weights,
            min(dimensions, *weights.shape),
            n_iter=_POWER_ITERATIONS,
            random_state=rng_seed,
        )
    return unit(left * singular)


def unit(vectors: NDArray[np.floating]) -> Vectors:
    """Return rows scaled to length 1; rows of zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return np.asarray(scaled, dtype=np.float32)


class _Counted:
    """Pass texts on and count them."""

    def __init__(self, texts: Iterable[str]):
        self._texts, self.count = texts, 0

    def __iter__(self) -> Iterator[str]:
        for text in self._texts:
            self.count += 1
            yield text
