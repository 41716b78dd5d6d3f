"""On the default corpus, documents that follow each other are far more alike than by chance."""

import os
from pathlib import Path

import pytest

from bam_lab import resources
from bam_lab.data.corpus.build import build
from bam_lab.data.order.embed import tfidf_svd
from bam_lab.data.order.reorder import reorder
from bam_lab.data.tokens import tokenizer
from bam_lab.data.tokens.encode import encode_corpus
from bam_lab.errors import InputError
from bam_lab.record.store import Store
from bam_lab.spec.corpus import CorpusSpec, located
from bam_lab.spec.data import Similar
from bam_lab.spec.reader import read

ROOT = Path(__file__).parents[3]
RATIO = 2


def built(folder):
    """Build and encode the default corpus, from what the store has downloaded before."""
    path = resources.folder("configs") / "corpus" / "default.yaml"
    store = Store(Path(os.environ.get("BAM_LAB_STORE", ROOT / ".bam-lab")))
    try:
        build(
            located(read(path, CorpusSpec), path.parent),
            store.cache,
            folder / "corpus",
            lambda note, done, total: None,
        )
    except InputError as error:
        if "network" not in str(error):
            raise
        pytest.skip(f"the default corpus is not here and cannot be downloaded: {error}")
    tokenizer.train(folder / "corpus", 4096, folder / "tokenizer")
    encode_corpus(folder / "corpus", folder / "tokenizer", folder / "tokens")


@pytest.mark.slow
def test_similar_order_raises_the_similarity_of_neighbours(tmp_path):
    built(tmp_path)
    for traversal in ("min_degree", "simple"):
        similar = Similar(traversal=traversal)
        _, records = reorder(
            tmp_path / "corpus",
            tmp_path / "tokens",
            tmp_path / traversal,
            similar,
            lambda texts: tfidf_svd(texts, 256, 0),
            workers=2,
        )
        assert records.keys() >= {"code", "general", "law", "math"}
        for domain, record in records.items():
            assert record.similarity > RATIO * record.similarity_random, (traversal, domain, record)
