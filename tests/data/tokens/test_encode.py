"""The tokenizer and the arrays that it fills."""

import errno
from pathlib import Path

import numpy as np
import pytest

from bam_lab.data.corpus import manifest as corpus
from bam_lab.data.corpus.split import SPLITS
from bam_lab.data.tokens import encode as tokens
from bam_lab.data.tokens import tokenizer
from bam_lab.errors import InputError
from bam_lab.spec.model import END_OF_TEXT_ID


def test_trains_to_the_same_bytes(corpus_dir, tokenizer_dir, tmp_path):
    facts = tokenizer.train(corpus_dir, 512, tmp_path)
    assert facts.vocab_size == 512
    for path in tokenizer_dir.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_every_text_comes_back(tokenizer_dir):
    loaded = tokenizer.load(tokenizer_dir)
    for text in ("def f(x):\n\treturn x  # é", "∑ 中文 \x00", " <|endof text|>", ""):
        assert loaded.decode(loaded.encode(text).ids, skip_special_tokens=False) == text


def test_a_vocabulary_that_the_text_cannot_fill_is_said(corpus_dir, tmp_path):
    with pytest.raises(InputError, match=r"vocab_size must be at most \d+ .*got 60000"):
        tokenizer.train(corpus_dir, 60000, tmp_path)
    with pytest.raises(InputError, match="vocab_size must be at least 257, got 100"):
        tokenizer.train(corpus_dir, 100, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_documents_come_back_from_the_arrays(corpus_dir, tokenizer_dir, tokens_dir):
    loaded = tokenizer.load(tokenizer_dir)
    manifest = tokens.read_tokens_manifest(tokens_dir)
    for domain in manifest.tokens:
        for split in SPLITS:
            stream = tokens.stream(tokens_dir, domain, split)
            index = tokens.documents(tokens_dir, domain, split)
            rows = list(corpus.read_documents(corpus_dir, domain, split))
            assert (
                len(stream) == manifest.tokens[domain][split] == index["length"].sum() + len(rows)
            )
            assert stream.dtype == np.uint16
            for row, entry in zip(rows, index, strict=True):
                end = entry["start"] + entry["length"]
                assert loaded.decode(stream[entry["start"] : end].tolist()) == row["text"]
                assert stream[end] == manifest.end_of_text
                assert entry["bytes"] == len(row["text"].encode())
                assert manifest.sources[entry["source"]] == row["source"]


def test_token_counts_are_of_one_split_of_all_domains(tokens_dir):
    manifest = tokens.read_tokens_manifest(tokens_dir)
    counts = tokens.token_counts(tokens_dir, "valid")
    assert counts.shape == (manifest.vocab_size,)
    assert counts.sum() == sum(split["valid"] for split in manifest.tokens.values())
    texts = [tokens.stream(tokens_dir, domain, "valid") for domain in manifest.tokens]
    token = int(texts[0][0])
    assert counts[token] == sum((text == token).sum() for text in texts) > 0


def test_text_that_looks_like_end_of_text_is_text(tokenizer_dir):
    loaded = tokenizer.load(tokenizer_dir)
    ids = loaded.encode("a <|endoftext|> b").ids
    assert END_OF_TEXT_ID not in ids
    assert loaded.decode(ids) == "a <|endoftext|> b"


def test_encodes_to_the_same_bytes_on_any_number_of_cores(
    corpus_dir, tokenizer_dir, tokens_dir, tmp_path
):
    told = []
    tokens.encode_corpus(
        corpus_dir, tokenizer_dir, tmp_path, lambda *said: told.append(said), workers=2
    )
    for path in tokens_dir.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name
    assert [done for _, done, _ in told] == list(range(1, 13))


def test_a_full_disk_is_said(corpus_dir, tokenizer_dir, tmp_path, monkeypatch):
    def full(self, mode="r", *arguments, **options):
        if self.name == "law.train.documents.part":
            raise OSError(errno.ENOSPC, "No space left on device", str(self))
        return opened(self, mode, *arguments, **options)

    opened = Path.open
    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(InputError, match="cannot be written: the disk is full"):
        tokens.encode_corpus(corpus_dir, tokenizer_dir, tmp_path, workers=1)
    assert not (tmp_path / tokens.MANIFEST).exists()
