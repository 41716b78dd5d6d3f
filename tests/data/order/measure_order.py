"""Measure an order: `python -m tests.data.order.measure_order FOLDER DOCUMENTS`.

Writes invented documents into FOLDER, orders them by similarity with two workers, and prints time
and memory (100,000 are meant to take under 5 minutes and 4 GB on two cores). Deletes what it wrote.
"""

import json
import resource
import shutil
import sys
import time
from pathlib import Path

import numpy as np

from bam_lab.data.order.embed import tfidf_svd
from bam_lab.data.order.reorder import reorder
from bam_lab.data.tokens.encode import DOCUMENT
from bam_lab.record.files import write_json
from bam_lab.spec.data import Similar


def write(folder, count):
    """Write documents of 400 words in the mean, by Zipf's law, a third of them one topic's own."""
    random = np.random.default_rng(0)
    words = np.array([f"w{number:x}" for number in range(150_000)])
    often = np.cumsum(1 / np.arange(1, len(words) + 1) ** 1.05)
    index, start = np.zeros(count, DOCUMENT), 0
    with (folder / "law.train.jsonl").open("w") as file:
        lengths = random.lognormal(5.6, 0.9, count).clip(30, 5000).astype(int).tolist()
        for number, length in enumerate(lengths):
            chosen = np.searchsorted(often, random.random(length) * often[-1])
            own = random.random(length) < 0.3
            chosen[own] = 1000 + (chosen[own] * 31 + random.integers(500) * 257) % 149_000
            text = " ".join(words[chosen])
            file.write(json.dumps({"id": str(number), "source": "s", "text": text}) + "\n")
            index[number] = (start, length, len(text), 0)
            start += length + 1
    np.save(folder / "law.train.npy", np.zeros(start, "<u2"))
    np.save(folder / "law.train.documents.npy", index)
    tokens = {"law": {"train": start, "valid": 0, "test": 0}}
    facts = {"digest": "", "vocab_size": 2, "end_of_text": 0, "sources": ["s"], "tokens": tokens}
    write_json(folder / "tokens.json", facts)


def main():
    """Write, order, print seconds, processor seconds, peak memory and the record; delete."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    try:
        write(folder, int(sys.argv[2]))
        started, before, similar = time.perf_counter(), time.process_time(), Similar()

        def embed(texts):
            return tfidf_svd(texts, similar.dimensions, similar.rng_seed)

        _, records = reorder(folder, folder, folder / "out", similar, embed, workers=2)
        seconds, spent = time.perf_counter() - started, time.process_time() - before
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(f"{seconds:.0f} s, {spent:.0f} CPU s, {peak / 1e9:.2f} GB, {records['law']}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
