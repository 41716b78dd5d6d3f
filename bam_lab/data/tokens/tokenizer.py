"""Train a byte-level BPE tokenizer on a built corpus, and read it back.

The only module that imports Hugging Face `tokenizers`.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from bam_lab.data.corpus.manifest import read_documents, read_manifest
from bam_lab.errors import InputError
from bam_lab.record.files import explained, make_folder, write_json, write_text
from bam_lab.spec.model import END_OF_TEXT_ID

FILE = "tokenizer.json"
END_OF_TEXT = "<|endoftext|>"
SAMPLE_BYTES = 4_000_000


@dataclass(frozen=True)
class TokenizerFacts:
    """Say what was trained; `digest` is the SHA-256 of tokenizer.json."""

    vocab_size: int
    digest: str


def train(corpus_dir: Path, vocab_size: int, out: Path) -> TokenizerFacts:
    """Train on the first `SAMPLE_BYTES` of each domain's training text; write `out/`.

    Documents stand in hash order, so that the first ones are a sample of all sources.

    Raises:
        InputError: the text is too small for the vocabulary, or the vocabulary for bytes.
    """
    smallest = len(pre_tokenizers.ByteLevel.alphabet()) + 1
    if vocab_size < smallest:
        raise InputError(
            f"vocab_size must be at least {smallest}, got {vocab_size}. Mend it in the model."
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sample(corpus_dir), trainer)
    assert tokenizer.token_to_id(END_OF_TEXT) == END_OF_TEXT_ID
    if tokenizer.get_vocab_size() < vocab_size:
        raise InputError(
            f"vocab_size must be at most {tokenizer.get_vocab_size()} for this corpus, got "
            f"{vocab_size}. Lower it in the model, or use more text."
        )
    text = tokenizer.to_str()
    facts = TokenizerFacts(vocab_size, hashlib.sha256(text.encode()).hexdigest())
    make_folder(out)
    write_text(out / FILE, text)
    write_json(
        out / "tokenizer_facts.json", {"vocab_size": facts.vocab_size, "digest": facts.digest}
    )
    return facts


def load(tokenizer_dir: Path) -> Tokenizer:
    """Read a trained tokenizer."""
    with explained(tokenizer_dir / FILE):
        tokenizer = Tokenizer.from_file(str(tokenizer_dir / FILE))
    # Only `tokens.py` puts end-of-text, between documents: a text that spells it out stays text.
    tokenizer.encode_special_tokens = True
    return tokenizer


def _sample(corpus_dir: Path) -> Iterator[str]:
    """Yield training text, equally much of every domain."""
    for domain in sorted(read_manifest(corpus_dir).domains):
        size = 0
        for document in read_documents(corpus_dir, domain, "train"):
            size += len(document["text"].encode())
            if size > SAMPLE_BYTES:
                break
            yield document["text"]
