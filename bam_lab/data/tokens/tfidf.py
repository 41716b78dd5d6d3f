"""Tf-idf statistics of training text: what Branch-Train-Merge knows a domain by.

A document's vector is its token counts times idf, scaled to length 1; idf_v = ln((1 + n) / (1 +
n_v)) + 1 with n documents of which n_v hold token v, over all domains that are read, each once
(scikit-learn's defaults). A domain's centroid is the mean of its documents' vectors, and that of a
data mix the mean of its domains' by the mix's weights. End-of-text is no token of a document.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bam_lab.data.tokens.encode import documents, read_tokens_manifest, stream


def statistics(
    tokens_dir: Path, mixes: Sequence[Mapping[str, float]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return idf [V], and the centroid of each mix [N, V], from training text."""
    vocab = read_tokens_manifest(tokens_dir).vocab_size
    domains = sorted({domain for mix in mixes for domain, weight in mix.items() if weight > 0})
    held = np.zeros(vocab)
    total = 0
    for domain in domains:
        for tokens in _documents(tokens_dir, domain):
            held[np.unique(tokens)] += 1
            total += 1
    idf = np.log((1 + total) / (1 + held)) + 1
    means = {domain: _mean(tokens_dir, domain, idf) for domain in domains}
    centroids = [
        sum(
            (weight * means[domain] for domain, weight in mix.items() if weight > 0),
            np.zeros(vocab),
        )
        for mix in mixes
    ]
    return idf, np.stack(centroids)


def _mean(tokens_dir: Path, domain: str, idf: NDArray[np.float64]) -> NDArray[np.float64]:
    total, count = np.zeros_like(idf), 0
    for tokens in _documents(tokens_dir, domain):
        found, times = np.unique(tokens, return_counts=True)
        vector = times * idf[found]
        total[found] += vector / np.linalg.norm(vector)
        count += 1
    return total / count


def _documents(tokens_dir: Path, domain: str) -> Iterator[NDArray[np.unsignedinteger]]:
    """Yield the training documents of a domain, without those that hold no token."""
    text = stream(tokens_dir, domain, "train")
    for row in documents(tokens_dir, domain, "train"):
        if row["length"]:
            yield text[row["start"] : row["start"] + row["length"]]
