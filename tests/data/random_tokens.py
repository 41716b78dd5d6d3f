"""Encoded text of random tokens, written without a corpus or a tokenizer."""

import numpy as np

from bam_lab.data.tokens.encode import DOCUMENT
from bam_lab.record.files import write_json

VOCAB = 61


def write_domain(folder, domain, lengths, sources, split="train", rng_seed=0):
    """Write documents of these lengths; end-of-text, 0, stands behind each and nowhere else."""
    lengths = np.asarray(lengths, dtype=np.int64)
    ends = np.cumsum(lengths + 1)
    tokens = np.random.default_rng(rng_seed).integers(1, VOCAB, ends[-1]).astype("<u2")
    tokens[ends - 1] = 0
    index = np.zeros(len(lengths), dtype=DOCUMENT)
    index["start"], index["length"], index["bytes"] = ends - lengths - 1, lengths, lengths
    index["source"] = sources
    np.save(folder / f"{domain}.{split}.npy", tokens)
    np.save(folder / f"{domain}.{split}.documents.npy", index)


def write_manifest(folder, sources, domains=()):
    manifest = {"digest": "", "vocab_size": VOCAB, "end_of_text": 0, "sources": list(sources)}
    write_json(folder / "tokens.json", manifest | {"tokens": {domain: {} for domain in domains}})
