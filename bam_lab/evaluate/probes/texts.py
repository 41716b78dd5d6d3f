"""Rows of held-out text of one exact length, each a part of one document.

Shapes: N rows, L tokens.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from bam_lab.data.tokens.encode import documents, stream
from bam_lab.errors import InputError


class Text(NamedTuple):
    """Hold rows of one domain.

    Attributes:
        domain: of what is scored in them.
        prompt_domain: of what stands before that.
        tokens: the rows.
        document: the document of the domain, by its number, that each row's scored part is of.
    """

    domain: str
    prompt_domain: str
    tokens: Int[ndarray, "N L"]
    document: Int[ndarray, " N"]


def texts(
    tokens_dir: Path, domains: Sequence[str], split: str, length: int, most: int
) -> list[Text]:
    """Return at most `most` rows of each domain.

    Documents are cut from their start into rows that do not overlap; what is left over is not read.
    First come the first rows of all documents, then their second ones: of many documents rather
    than of a long one. Documents stand in hash order, so that the first ones are a sample.

    Raises:
        InputError: no document of a domain is long enough.
    """
    return [_text(tokens_dir, domain, split, length, most) for domain in domains]


def _text(tokens_dir: Path, domain: str, split: str, length: int, most: int) -> Text:
    index = documents(tokens_dir, domain, split)
    rows = index["length"] // length
    if not rows.any():
        longest = int(index["length"].max()) if len(index) else 0
        raise InputError(
            f"{domain} must hold out a document of {length} tokens or more in {split}, got none "
            f"above {longest}. Ask for shorter prompts and completions, or give it more text."
        )
    chosen: list[tuple[int, int]] = []
    for number in range(int(rows.max())):
        long_enough = np.flatnonzero(rows > number)[: most - len(chosen)]
        chosen += [(int(i), number) for i in long_enough]
        if len(chosen) >= most:
            break
    text = stream(tokens_dir, domain, split)
    starts = [int(index["start"][i]) + number * length for i, number in chosen]
    tokens = np.stack([text[start : start + length] for start in starts]).astype(np.int64)
    return Text(domain, domain, tokens, np.array([i for i, _ in chosen]))


def switched(found: Sequence[Text], prompt_len: int) -> list[Text]:
    """Return every domain's completions after the prompts of every other domain.

    Row i has the prompt of the other's row i, or begins again with its first where it has fewer.
    """
    result = []
    for own in found:
        for other in found:
            if other.domain != own.domain:
                turn = np.arange(len(own.tokens)) % len(other.tokens)
                prompts = other.tokens[turn, :prompt_len]
                tokens = np.concatenate((prompts, own.tokens[:, prompt_len:]), 1)
                result.append(Text(own.domain, other.domain, tokens, own.document))
    return result
