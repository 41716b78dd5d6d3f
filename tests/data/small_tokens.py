"""Encoded text of five tokens in two domains: few enough to add up by hand."""

import numpy as np

from bam_lab.data.tokens.encode import DOCUMENT
from bam_lab.record.files import write_json

END = 0
TEXTS = {"law": [[1, 1, 2], [2, 3]], "code": [[4], []]}


def write_tokens(folder):
    for domain, texts in TEXTS.items():
        starts = np.cumsum([0, *(len(text) + 1 for text in texts)])[:-1]
        index = [(start, len(text), 9, 0) for start, text in zip(starts, texts, strict=True)]
        stream = [token for text in texts for token in (*text, END)]
        np.save(folder / f"{domain}.train.npy", np.array(stream, dtype="<u2"))
        np.save(folder / f"{domain}.train.documents.npy", np.array(index, dtype=DOCUMENT))
    manifest = {"digest": "", "vocab_size": 5, "end_of_text": END, "sources": ["s"], "tokens": {}}
    write_json(folder / "tokens.json", manifest)
    return folder
