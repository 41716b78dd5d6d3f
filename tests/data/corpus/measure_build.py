"""Measure a large build: `python -m tests.data.corpus.measure_build FOLDER MB`.

Writes a .jsonl of MB megabytes of invented text into FOLDER (words drawn as Zipf has them; of the
documents 1% are copies, 1% near copies, and a third carry one of 500 common paragraphs), builds a
corpus from it on all cores, and prints time and the largest memory of all its processes together.
Deletes what it wrote.
"""

import itertools
import json
import multiprocessing
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import psutil

from bam_lab.data.corpus.build import build
from bam_lab.spec.corpus import Cleaning, CorpusSpec, DomainSource, HoldOut
from bam_lab.spec.sources import FilesSource

WORDS = 100_000
EVERY_SECONDS = 0.5


def write(path: Path, megabytes: float) -> int:
    """Write the text; return the number of documents."""
    generator = np.random.default_rng(1)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = np.array(
        ["".join(generator.choice(letters, n)) for n in generator.integers(2, 11, WORDS)], object
    )
    weights = 1 / np.arange(10, WORDS + 10)
    weights = np.cumsum(weights / weights.sum())
    common = [" ".join(words[generator.integers(0, WORDS, 40)]) for _ in range(500)]
    size = count = 0
    last = ["start"]
    with path.open("w", encoding="utf-8") as file:
        while size < megabytes * 1e6:
            drawn = words[
                np.minimum(np.searchsorted(weights, generator.random(200_000)), WORDS - 1)
            ]
            cuts = np.cumsum(generator.integers(60, 460, 760))
            for start, stop in itertools.pairwise(cuts):
                own = drawn[start:stop].tolist()
                kind = generator.random()
                if kind < 0.02:
                    own = last if kind < 0.01 else [*last[:-2], *own[:2]]
                text = " ".join(own)
                if kind > 0.67:
                    text += "\n\n" + common[int(kind * 1e6) % 500]
                size += file.write(json.dumps({"text": text}) + "\n")
                count += 1
                last = own
    return count


def spec(folder: Path) -> CorpusSpec:
    """Return a corpus of one domain without caps."""
    source = FilesSource(
        kind="files", name="big", folder=str(folder), pattern="big.jsonl", licence="none",
        max_megabytes=1e6,
    )  # fmt: skip
    cleaning = Cleaning(
        min_characters=200, max_characters=100_000, min_ascii_share=0.9, paragraph_characters=80,
        paragraph_repeats=2, shingle_words=8, near_duplicate_jaccard=0.8, held_out_overlap=0.2,
    )  # fmt: skip
    domain = DomainSource(
        title="invented", min_megabytes=0.1, max_megabytes=1e6,
        hold_out=HoldOut(valid=0.02, test=0.02), sources=(source,),
    )  # fmt: skip
    return CorpusSpec(schema=1, general="big", cleaning=cleaning, domains={"big": domain})


def watch(pid: int, peak: "multiprocessing.sharedctypes.Synchronized[int]") -> None:
    """Keep the largest memory of a process and all below it; of shared pages, each its share."""
    while True:
        total = 0
        try:
            root = psutil.Process(pid)
            for process in [root, *root.children(recursive=True)]:
                if process.pid != multiprocessing.current_process().pid:
                    total += process.memory_full_info().pss
        except psutil.NoSuchProcess:  # one has just ended: the next look counts them all again
            pass
        peak.value = max(peak.value, total)
        time.sleep(EVERY_SECONDS)


def main() -> None:
    """Write, build, print, delete."""
    folder, megabytes = Path(sys.argv[1]), float(sys.argv[2])
    folder.mkdir(parents=True)
    count = write(folder / "big.jsonl", megabytes)
    print(f"{count:,} documents, {(folder / 'big.jsonl').stat().st_size / 1e6:,.0f} MB", flush=True)
    peak = multiprocessing.Value("q", 0)
    process = multiprocessing.get_context("fork").Process(
        target=watch, args=(multiprocessing.current_process().pid, peak), daemon=True
    )
    process.start()
    began = told = time.monotonic()

    def progress(message: str, done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told > 10:
            told = time.monotonic()
            seconds, memory = told - began, peak.value / 1e6
            print(f"{seconds:6.0f} s {memory:6.0f} MB {done}/{total} {message}", flush=True)

    try:
        manifest = build(spec(folder), folder / "cache", folder / "out", progress)
    finally:
        process.terminate()
        shutil.rmtree(folder)
    record = manifest.domains["big"]
    print(record.splits, record.sources["big"].dropped, record.contamination, record.moved)
    print(f"{time.monotonic() - began:,.0f} s, at most {peak.value / 1e6:,.0f} MB together")


if __name__ == "__main__":
    main()
