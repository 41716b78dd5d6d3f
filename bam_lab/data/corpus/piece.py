"""The steps of a build that one process does with one piece of a source.

Each does nothing when an earlier, interrupted build has done it.
"""

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bam_lab.data.arrays import grown, save
from bam_lab.data.corpus import clean, dedup
from bam_lab.data.corpus.contamination import Table
from bam_lab.data.corpus.domain import TEST, TRAIN, VALID
from bam_lab.data.corpus.runs import CONTAMINATION_WORDS, Runs, together
from bam_lab.data.corpus.unit import DOCUMENT, Lines, Unit, rows_of
from bam_lab.data.sources.pieces import Tally
from bam_lab.data.sources.read import documents
from bam_lab.errors import InputError
from bam_lab.record.files import explained, make_folder, read_json, write_json
from bam_lab.spec.corpus import Cleaning

LENGTH = "length or script"
PARAGRAPHS = "repeated paragraphs"


def read(unit: Unit, cleaning: Cleaning) -> dict[str, Any]:
    """Read, normalise and filter a piece; note the hashes of its long paragraphs.

    Evaluation items are normalised alone. A piece that cannot be read is told by `failure`.
    """
    done = unit.folder / "read.json"
    if done.exists():
        return dict(read_json(done))
    make_folder(unit.folder)
    told = _read(unit, cleaning)
    if told["failure"] is None:  # else the next build tries again: a missing package may be there
        write_json(done, told)
    return told


def _read(unit: Unit, cleaning: Cleaning) -> dict[str, Any]:
    tally = Tally()
    count: Counter[str] = Counter()
    keys = array("Q")
    path = unit.folder / "read.jsonl"
    failure = None
    with explained(path), path.open("wb") as file:
        lines = Lines(file)
        try:
            for name, raw in documents(unit.source, unit.piece, tally):
                count["documents"] += 1
                count["bytes"] += len(raw.encode())
                text = clean.normalise(raw)
                tally.controls += clean.has_controls(raw)
                if unit.domain is not None and not clean.keep(text, cleaning):
                    count[LENGTH] += 1
                    continue
                found = clean.paragraph_keys(text, cleaning) if unit.domain is not None else []
                keys.extend(found)
                lines.write(f"{unit.source.name}/{name}", unit.source.name, text)
        except InputError as error:
            failure = str(error)
    save(unit.folder / "paragraphs.npy", np.array(keys, np.uint64))
    return {
        "read": {name: count[name] for name in ("documents", "bytes")},
        "dropped": {LENGTH: count[LENGTH]},
        "tally": asdict(tally),
        "failure": failure,
    }


def finish(unit: Unit, cleaning: Cleaning) -> dict[str, int]:
    """Take repeated paragraphs out, and write what tells near duplicates; return what dropped."""
    done = unit.folder / "finish.json"
    if done.exists():
        return dict(read_json(done))
    dropped: Counter[str] = Counter()
    shingler = Runs(cleaning.shingle_words)
    band_rows = dedup.band_rows(cleaning.near_duplicate_jaccard)
    path = unit.folder / "lines.jsonl"
    with (
        explained(path),
        path.open("wb") as file,
        grown(unit.folder / "index.npy", DOCUMENT) as index,
        grown(unit.folder / "signatures.npy", "<u4", dedup.PERMUTATIONS) as signatures,
        grown(unit.folder / "bands.npy", "<u8", dedup.PERMUTATIONS // band_rows) as bands,
    ):
        lines = Lines(file)
        for batch in together(_without_repeats(unit, cleaning, dropped), _size):
            texts = [row["text"] for row in batch]
            found = dedup.signatures(*shingler.shingles(texts))
            signatures.append(found)
            bands.append(dedup.bands(found, band_rows))
            rows = [_entry(row["text"], *lines.write(**row)) for row in batch]
            index.append(np.array(rows, DOCUMENT))
    write_json(done, dropped)
    for name in ("read.jsonl", "paragraphs.npy", "repeated.npy"):
        (unit.folder / name).unlink(missing_ok=True)
    return dict(dropped)


def _without_repeats(
    unit: Unit, cleaning: Cleaning, dropped: Counter[str]
) -> Iterator[dict[str, str]]:
    """Yield the documents that stay without the paragraphs that are too many."""
    repeated = iter(unit.array("repeated"))
    for row in rows_of(unit.folder / "read.jsonl"):
        text = clean.without_repeats(row["text"], repeated, cleaning)
        if clean.keep(text, cleaning):
            yield {**row, "text": text}
        else:
            dropped[PARAGRAPHS] += 1


def _entry(text: str, start: int, size: int) -> tuple[int, int, int, int, int]:
    content = text.encode()
    digest = hashlib.sha256(content).digest()
    return int.from_bytes(digest[:8]), int.from_bytes(digest[16:24]), start, size, len(content)


def held_out_runs(unit: Unit) -> None:
    """Write the distinct runs of 13 words of the piece's held-out documents, or of all its items.

    `runs.npy` holds them one document after the other, `run_counts.npy` how many are of each.
    """
    done = unit.folder / "run_counts.npy"
    if done.exists():
        return
    if unit.domain is None:
        texts: Iterator[str] = map(_text, rows_of(unit.folder / "read.jsonl"))
    else:
        state = unit.array("state")
        texts = unit.texts(np.flatnonzero((state == VALID) | (state == TEST)))
    runs_of = Runs(CONTAMINATION_WORDS)
    with grown(unit.folder / "runs.npy", "<u8") as runs, grown(done, "<i8") as counts:
        for text in texts:
            distinct = np.unique(runs_of([text])[0])
            runs.append(distinct)
            counts.append(np.array([len(distinct)]))


def training_hits(unit: Unit, table: Path) -> None:
    """Write which runs of the table stand in the piece's training documents: `hits.npy`."""
    done = unit.folder / "hits.npy"
    if done.exists():
        return
    search = Table(np.load(table))
    runs_of = Runs(CONTAMINATION_WORDS)
    hit = np.zeros(len(search), dtype=np.bool_)
    for batch in together(unit.texts(np.flatnonzero(unit.array("state") == TRAIN)), len):
        hit[search.find(runs_of(batch)[0])] = True
    save(done, np.flatnonzero(hit))


def _text(row: dict[str, str]) -> str:
    return row["text"]


def _size(row: dict[str, str]) -> int:
    return len(row["text"])
