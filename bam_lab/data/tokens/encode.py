"""Encode a corpus into flat memory-mapped arrays, with an index of documents beside each.

DOMAIN.SPLIT.npy            all documents, each followed by end-of-text
DOMAIN.SPLIT.documents.npy  one `DOCUMENT` a document, in the same order
tokens.json                 counts, source names, end-of-text, digest
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bam_lab.data import pool
from bam_lab.data.arrays import digest, grown
from bam_lab.data.corpus.manifest import read_documents, read_manifest
from bam_lab.data.corpus.runs import together
from bam_lab.data.corpus.split import SPLITS
from bam_lab.data.tokens import tokenizer as tokenizers
from bam_lab.record.files import make_folder, write_json
from bam_lab.spec.model import END_OF_TEXT_ID
from bam_lab.spec.parts import Part, part_of

MANIFEST = "tokens.json"
DOCUMENT = np.dtype([("start", "<i8"), ("length", "<i8"), ("bytes", "<i8"), ("source", "<i4")])
"""start and length in tokens, end-of-text not counted; bytes of UTF-8; index into the sources."""

_COUNTED = 1 << 20  # tokens at a time: bincount widens them to eight bytes


@dataclass(frozen=True)
class TokensManifest:
    """Describe encoded text.

    Attributes:
        digest: hash over the arrays.
        end_of_text: id of the token that ends every document.
        sources: names that the documents' `source` points to.
        tokens: domain -> split -> tokens, end-of-text included.
    """

    digest: str
    vocab_size: int
    end_of_text: int
    sources: list[str]
    tokens: dict[str, dict[str, int]]


def encode_corpus(
    corpus_dir: Path,
    tokenizer_dir: Path,
    out: Path,
    progress: Callable[[str, int, int], None] = lambda message, done, total: None,
    workers: int | None = None,
) -> TokensManifest:
    """Encode every domain and split of a corpus into `out`."""
    make_folder(out)
    tokenizer = tokenizers.load(tokenizer_dir)
    manifest = read_manifest(corpus_dir)
    sources = sorted(name for domain in manifest.domains.values() for name in domain.sources)
    counts: dict[str, dict[str, int]] = {name: {} for name in manifest.domains}
    tasks = [
        (corpus_dir, tokenizer_dir, out, name, split, sources)
        for split in SPLITS  # the long ones, train, first
        for name in manifest.domains
    ]
    for done, (task, count) in enumerate(pool.each(_encode, tasks, workers)):
        _, _, _, name, split, _ = task
        counts[name][split] = count
        progress(f"encoded {name} {split}", done + 1, len(tasks))
    result = TokensManifest(
        digest(out),
        tokenizer.get_vocab_size(),
        END_OF_TEXT_ID,
        sources,
        counts,
    )
    write_json(out / MANIFEST, asdict(result))
    return result


def read_tokens_manifest(tokens_dir: Path) -> TokensManifest:
    """Read `tokens.json` of an encoded corpus."""
    return TokensManifest(**json.loads((tokens_dir / MANIFEST).read_text(encoding="utf-8")))


def stream(tokens_dir: Path, domain: str, split: str) -> NDArray[np.unsignedinteger]:
    """Return the tokens of one domain and split, memory-mapped; of a part of it, in memory."""
    if part := part_of(domain):
        whole = stream(tokens_dir, part.domain, split)
        rows = _of_part(tokens_dir, part, split)
        pieces = [whole[row["start"] : row["start"] + row["length"] + 1] for row in rows]
        return np.concatenate([whole[:0], *pieces])
    tokens: NDArray[np.unsignedinteger] = np.load(
        tokens_dir / f"{domain}.{split}.npy", mmap_mode="r"
    )
    return tokens


def token_counts(tokens_dir: Path, split: str) -> NDArray[np.int64]:
    """Return how often each token stands in a split of all domains together."""
    manifest = read_tokens_manifest(tokens_dir)
    counts = np.zeros(manifest.vocab_size, dtype=np.int64)
    for domain in manifest.tokens:
        tokens = stream(tokens_dir, domain, split)
        for start in range(0, len(tokens), _COUNTED):
            part = tokens[start : start + _COUNTED]
            counts += np.bincount(part, minlength=manifest.vocab_size)
    return counts


def documents(tokens_dir: Path, domain: str, split: str) -> NDArray[np.void]:
    """Return the index of documents of a domain, memory-mapped, or of a part; dtype `DOCUMENT`."""
    if part := part_of(domain):
        rows = _of_part(tokens_dir, part, split)
        rows["start"] = np.cumsum(rows["length"] + 1) - (rows["length"] + 1)
        return rows
    index: NDArray[np.void] = np.load(tokens_dir / f"{domain}.{split}.documents.npy", mmap_mode="r")
    return index


def _of_part(tokens_dir: Path, part: Part, split: str) -> NDArray[np.void]:
    """Return the documents of a part, in the folder's order; `start` in the whole domain.

    A folder with another order (`data/order/`) says which row of the encoded corpus each document
    had, so that a part is made of the same documents in every order.
    """
    index = documents(tokens_dir, part.domain, split)
    path = tokens_dir / f"{part.domain}.{split}.rows.npy"
    rows = np.load(path) if path.exists() else np.arange(len(index))
    taken: NDArray[np.void] = np.array(index[rows % part.parts == part.number - 1])
    return taken


def _encode(
    corpus_dir: Path, tokenizer_dir: Path, out: Path, domain: str, split: str, sources: list[str]
) -> int:
    """Encode one domain and split; return its tokens."""
    tokenizer = tokenizers.load(tokenizer_dir)
    dtype = np.dtype("<u2" if tokenizer.get_vocab_size() <= 1 << 16 else "<u4")
    number = {name: place for place, name in enumerate(sources)}
    rows = read_documents(corpus_dir, domain, split)
    stem = out / f"{domain}.{split}"
    position = 0
    with (
        grown(Path(f"{stem}.npy"), dtype) as tokens,
        grown(Path(f"{stem}.documents.npy"), DOCUMENT) as index,
    ):
        for batch in together(rows, lambda row: len(row["text"])):
            encodings = tokenizer.encode_batch_fast([row["text"] for row in batch])
            entries = []
            for row, encoding in zip(batch, encodings, strict=True):
                size = len(row["text"].encode())
                entries.append((position, len(encoding.ids), size, number[row["source"]]))
                tokens.append(np.array([*encoding.ids, END_OF_TEXT_ID], dtype))
                position += len(encoding.ids) + 1
            index.append(np.array(entries, DOCUMENT))
    return position
