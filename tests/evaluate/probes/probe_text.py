"""Encoded text of two domains, words as tokens, and models that copy."""

import re

import numpy as np
import torch

from bam_lab.data.tokens.encode import DOCUMENT
from bam_lab.evaluate.probes.texts import Text
from bam_lab.record.files import write_json

END = 0
LENGTHS = {"law": [(30, 0), (100, 1), (7, 0), (64, 1)], "code": [(55, 2), (90, 2)]}


def write_tokens(folder):
    """Write documents of random tokens below 61: (tokens, source) each, as many bytes as tokens."""
    rng = np.random.default_rng(0)
    for domain, documents in LENGTHS.items():
        pieces, index, at = [], [], 0
        for length, source in documents:
            pieces.append(np.append(rng.integers(1, 61, length), END))
            index.append((at, length, length, source))
            at += length + 1
        np.save(folder / f"{domain}.test.npy", np.concatenate(pieces).astype("<u2"))
        np.save(folder / f"{domain}.test.documents.npy", np.array(index, dtype=DOCUMENT))
    facts = {"digest": "", "vocab_size": 61, "end_of_text": END, "sources": ["a", "b", "c"]}
    write_json(folder / "tokens.json", facts | {"tokens": {}})
    return folder


def random_text(domain="law", rows=5, length=60, seed=0, vocab=61):
    tokens = np.random.default_rng(seed).integers(1, vocab, (rows, length))
    return Text(domain, domain, tokens, np.arange(rows))


class Words:
    """Encode words as tokens, or parts of `size` letters; numbers are given as words come."""

    def __init__(self, size=99):
        self.size, self.known = size, {"": END}

    def __call__(self, text):
        parts = []
        for word in re.findall(r"\n| ?\w+| ?[^\w\s]", text):
            parts += [word[i : i + self.size] for i in range(0, len(word), self.size)]
        return [self.known.setdefault(part, len(self.known)) for part in parts]


class Copier:
    """Go on as the text did after the last (or first) place with the most equal tokens before it.

    With `reach` 1 it looks at one token alone, and so tells no keys apart.
    """

    vocab_size, max_seq_len = 2000, 600

    def __init__(self, reach=99, last=True):
        self.reach, self.sign = reach, 1 if last else -1
        self.device = torch.device("cpu")

    def next_token_logits(self, tokens):
        logits = torch.zeros(*tokens.shape, self.vocab_size)
        for row, own in enumerate(tokens.tolist()):
            for place in range(1, len(own)):
                best = max(range(place), key=lambda j: (self.equal(own, j, place), self.sign * j))
                if self.equal(own, best, place):
                    logits[row, place, own[best + 1]] = 20.0
        return logits

    def equal(self, own, one, other):
        count = 0
        while count < self.reach and count <= one and own[one - count] == own[other - count]:
            count += 1
        return count


class Constant:
    """Find all tokens alike, whatever stood before."""

    vocab_size, max_seq_len, device = 2000, 600, torch.device("cpu")

    def next_token_logits(self, tokens):
        return torch.zeros(*tokens.shape, self.vocab_size)


class Wrapped:
    """Offer a model of ours as any other one."""

    def __init__(self, model):
        self.model, self.device = model, torch.device("cpu")
        self.vocab_size, self.max_seq_len = model.spec.vocab_size, model.spec.max_seq_len

    def next_token_logits(self, tokens):
        return self.model.logits(self.model(tokens).hidden)


def only(rows, **wanted):
    """Return the one row with these values."""
    (found,) = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return found
