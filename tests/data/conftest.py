"""The fixture corpus, built and encoded once."""

from pathlib import Path

import pytest

from bam_lab.data.corpus import build as corpus
from bam_lab.data.tokens import encode as tokens
from bam_lab.data.tokens import tokenizer
from bam_lab.spec.corpus import CorpusSpec, located
from bam_lab.spec.reader import read

FIXTURES = Path(__file__).parents[1] / "fixtures"


def silent(message, done, total):
    """Take progress and say nothing."""


@pytest.fixture(scope="session")
def corpus_spec():
    return located(read(FIXTURES / "corpus.yaml", CorpusSpec), FIXTURES)


@pytest.fixture(scope="session")
def corpus_dir(tmp_path_factory, corpus_spec):
    folder = tmp_path_factory.mktemp("corpus")
    corpus.build(corpus_spec, folder / "cache", folder / "out", silent, workers=1)
    return folder / "out"


@pytest.fixture(scope="session")
def tokenizer_dir(tmp_path_factory, corpus_dir):
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.train(corpus_dir, 512, folder)
    return folder


@pytest.fixture(scope="session")
def tokens_dir(tmp_path_factory, corpus_dir, tokenizer_dir):
    folder = tmp_path_factory.mktemp("tokens")
    tokens.encode_corpus(corpus_dir, tokenizer_dir, folder, workers=1)
    return folder
