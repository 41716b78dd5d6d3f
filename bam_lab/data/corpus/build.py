"""Build a corpus: every domain from its sources, and a manifest of what it is made of.

Same spec, same files, same bytes: documents stand in the order of their content hash, and nothing
that is written depends on time, machine or the number of workers. Text streams through files of
`.build` (`unit.py`), one step after the other; a build that was interrupted goes on with the pieces
that are not done.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bam_lab.data.arrays import save
from bam_lab.data.corpus import domain as domains
from bam_lab.data.corpus import piece
from bam_lab.data.corpus.contamination import HeldOut, Texts, settle
from bam_lab.data.corpus.manifest import MANIFEST, CorpusManifest
from bam_lab.data.corpus.records import (
    Given,
    Judged,
    check_enough,
    check_held_out,
    domain_record,
    evaluation_record,
    judged,
)
from bam_lab.data.corpus.runs import Hashes
from bam_lab.data.corpus.split import SPLITS
from bam_lab.data.corpus.unit import Unit
from bam_lab.data.pool import Pool
from bam_lab.data.sources.pieces import Piece, Tally
from bam_lab.data.sources.read import open_source
from bam_lab.errors import InputError
from bam_lab.record.files import make_folder, read_json, write_json
from bam_lab.spec.corpus import CorpusSpec, sources_of
from bam_lab.spec.sources import local_folder

Progress = Callable[[str, int, int], None]

STEPS = ".build"
MOST_WORKERS = 6
"""A process takes up to 100 MB: more of them would break the limit of 1 GB."""
_LAYOUT = 1


class Steps:
    """Count the steps of a build, and tell them."""

    def __init__(self, progress: Progress, total: int):
        """Tell steps to `progress`."""
        self._progress, self._total, self._done = progress, total, 0

    def more(self, total: int) -> None:
        """Raise the number of steps."""
        self._total += total

    def step(self, message: str, count: int = 1) -> None:
        """Tell that `count` more are done."""
        self._done += count
        self._progress(message, self._done, self._total)


def build(
    spec: CorpusSpec, cache: Path, out: Path, progress: Progress, workers: int | None = None
) -> CorpusManifest:
    """Write `out/DOMAIN.SPLIT.jsonl` and `out/corpus.json`.

    Args:
        spec: with located folders (`spec.corpus.located`).
        cache: folder of downloads, shared by all corpora.
        out: a temporary folder that only this build writes; the caller renames it. What an
            interrupted build of the same corpus left there is used.
        progress: told (message, done, total) after each step.
        workers: processes; by default one a core, at most `MOST_WORKERS`. It changes no byte.

    Raises:
        InputError: a domain has too little text, a source is broken, or the disk cannot be written.
    """
    make_folder(out)
    steps = Steps(progress, len(sources_of(spec)))
    given = _open(spec, cache, out, steps)
    _start(spec, given, out)
    work = _Work(spec, given, out, steps)
    with Pool(workers or min(os.cpu_count() or 1, MOST_WORKERS)) as pool:
        work.read(pool)
        work.choose(pool)
        work.judge(pool)
        manifest = work.write(pool)
    shutil.rmtree(out / STEPS)
    return manifest


def _open(spec: CorpusSpec, cache: Path, out: Path, steps: Steps) -> list[Given]:
    """Fetch in this process, one source after the other."""
    given = [Given(s, name) for name, domain in spec.domains.items() for s in domain.sources]
    given += [Given(source, None) for source in spec.evaluation]
    problems = []
    number = 0
    for one in given:
        steps.step(f"opening {one.source.name}", 0)
        try:
            one.opened = open_source(one.source, cache)
        except InputError as error:
            one.failure = str(error)
            if local_folder(one.source) is not None:
                problems.append(one.failure)
        else:
            one.tally.notes += one.opened.notes
            position = 0
            if one.domain is not None:
                position = spec.domains[one.domain].sources.index(one.source)
            for part in one.opened.pieces:
                folder = out / STEPS / f"{number:06d}"
                one.units.append(Unit(one.domain, position, one.source, part, folder))
                number += 1
        steps.step(f"opened {one.source.name}")
    if problems:  # the user can mend what is local; a registry may be down
        raise InputError("\n".join(problems))
    return given


def _start(spec: CorpusSpec, given: list[Given], out: Path) -> None:
    """Keep what an interrupted build of the same corpus left; delete that of any other."""
    sources = [
        {"failure": one.failure, "pieces": [_described(unit.piece) for unit in one.units]}
        for one in given
    ]
    plan = {"layout": _LAYOUT, "spec": spec.model_dump(mode="json"), "sources": sources}
    digest = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
    place = out / STEPS / "plan.json"
    if place.exists() and read_json(place) == digest:
        return
    shutil.rmtree(out / STEPS, ignore_errors=True)
    (out / MANIFEST).unlink(missing_ok=True)
    make_folder(out / STEPS)
    write_json(place, digest)


def _described(part: Piece) -> dict[str, Any]:
    found = [Path(path) for path in (part.path, *part.more) if path and Path(path).is_file()]
    states = [[about.st_size, about.st_mtime_ns] for about in (path.stat() for path in found)]
    return {**asdict(part), "files": states}


class _Work:
    """Do the steps after the sources are open."""

    def __init__(self, spec: CorpusSpec, given: list[Given], out: Path, steps: Steps):
        self.spec, self.given, self.out, self.steps = spec, given, out, steps
        self.units = [unit for one in given for unit in one.units]
        steps.more(4 * len(self.units) + (1 + len(SPLITS)) * len(spec.domains))
        self.judged: dict[str, Judged] = {}

    def of(self, name: str) -> list[Unit]:
        """Return the units of a domain whose sources can be read."""
        return [u for one in self.usable() if one.domain == name for u in one.units]

    def usable(self) -> list[Given]:
        return [one for one in self.given if one.failure is None]

    def read(self, pool: Pool) -> None:
        """Read every piece; leave out the sources that cannot be read, unless they are local."""
        told: dict[Path, dict[str, Any]] = {}
        documents = size = 0
        tasks = [(unit, self.spec.cleaning) for unit in self.units]
        for (unit, _), result in pool.each(piece.read, tasks):
            told[unit.folder] = result
            documents += result["read"]["documents"]
            size += result["read"]["bytes"]
            self.steps.step(f"read {len(told)} of {len(tasks)} pieces, {_amount(documents, size)}")
        problems = []
        for one in self.given:
            for unit in one.units:
                _add(one, told[unit.folder])
            problem = one.tally.too_broken(one.source.name)
            if one.failure is None and problem is not None:
                if one.domain is None:
                    one.failure = problem
                else:
                    problems.append(problem)
            if one.failure is not None and local_folder(one.source) is not None:
                problems.append(one.failure)
            elif one.failure is not None:
                owner = one.domain or "evaluation"
                self.steps.step(f"warning: {owner} lacks {one.source.name}: {one.failure}", 0)
        if problems:
            raise InputError("\n".join(problems))
        lost = sum(len(one.units) for one in self.given if one.failure is not None)
        self.steps.step("read every source", 3 * lost)

    def choose(self, pool: Pool) -> None:
        """Clean, then take what is distinct and within the caps."""
        cleaning = self.spec.cleaning
        for name in self.spec.domains:
            self.steps.step(f"looking for repeated paragraphs in {name}", 0)
            done = self.out / STEPS / f"paragraphs.{name}"
            domains.mark_paragraphs(self.of(name), cleaning, done)
        by_folder = {unit.folder: one for one in self.usable() for unit in one.units}
        of_domains = [u for name in self.spec.domains for u in self.of(name)]
        tasks = [(unit, cleaning) for unit in of_domains]
        for done_tasks, ((unit, _), dropped) in enumerate(pool.each(piece.finish, tasks), 1):
            by_folder[unit.folder].drop(dropped)
            self.steps.step(f"cleaned {done_tasks} of {len(tasks)} pieces")
        self.steps.step("looking for duplicates", 0)
        whole = [(self.of(name), domain, cleaning) for name, domain in self.spec.domains.items()]
        for _ in pool.each(domains.choose, whole):
            self.steps.step("found duplicates")
        check_enough(self.spec, self.given, {n: self.of(n) for n in self.spec.domains})

    def judge(self, pool: Pool) -> None:
        """Find what of held-out text and evaluation items stands in training, and act on it."""
        table = self.out / STEPS / "table.npy"
        held = [(unit,) for one in self.usable() for unit in one.units]
        for _ in pool.each(piece.held_out_runs, held):
            self.steps.step("hashed held-out text")
        if not table.exists():
            save(table, _distinct([unit for (unit,) in held]))
        runs = np.load(table)
        found = {}
        training = [(unit, table) for (unit,) in held if unit.domain is not None]
        for done, _ in enumerate(pool.each(piece.training_hits, training), 1):
            self.steps.step(f"searched {done} of {len(training)} pieces of training text")
        evaluation = sum(unit.domain is None for (unit,) in held)
        self.steps.step("searched training text", 2 * evaluation)  # nothing was cleaned of items
        held_out: dict[str, HeldOut] = {}
        for name, domain in self.spec.domains.items():
            units = self.of(name)
            found[name] = np.zeros(len(runs), dtype=np.bool_)
            for unit in units:
                found[name][unit.array("hits")] = True
            texts = texts_of(units, runs)
            out = np.zeros(len(texts.counts), dtype=np.bool_)
            held_out[name] = HeldOut(texts, domain.hold_out.whole, out)
        settle(held_out, found, self.spec.cleaning.held_out_overlap)
        anywhere = np.logical_or.reduce(list(found.values()))
        for name, domain in self.spec.domains.items():
            sources = len(domain.sources)
            self.judged[name] = judged(self.of(name), sources, held_out[name], anywhere)
        self.items = {
            one.source.name: evaluation_record(
                one, texts_of([] if one.failure else one.units, runs), found
            )
            for one in self.given
            if one.domain is None
        }
        check_held_out(self.spec, self.judged)

    def write(self, pool: Pool) -> CorpusManifest:
        """Write the text, then the manifest."""
        tasks = [
            (self.of(name), which, self.out / f"{name}.{split}.jsonl")
            for which, split in enumerate(SPLITS)  # the long ones, train, first
            for name in self.spec.domains
        ]
        hashes = {}
        for (_, _, path), digest in pool.each(domains.write, tasks):
            hashes[path.name] = digest
            self.steps.step(f"wrote {path.name}")
        files = dict(sorted(hashes.items()))
        text = "".join(f"{name} {digest}\n" for name, digest in files.items())
        records = {
            name: domain_record(
                domain, [one for one in self.given if one.domain == name], self.judged[name]
            )
            for name, domain in self.spec.domains.items()
        }
        manifest = CorpusManifest(
            hashlib.sha256(text.encode()).hexdigest(),
            files,
            self.spec.general,
            records,
            self.items,
        )
        write_json(self.out / MANIFEST, asdict(manifest))
        return manifest


def texts_of(units: Sequence[Unit], runs: Hashes) -> Texts:
    """Return the held-out texts or the items of some units by their runs in the table."""
    places = [np.searchsorted(runs, unit.array("runs")) for unit in units]
    counts = [unit.array("run_counts") for unit in units]
    none = np.zeros(0, np.int64)
    return Texts(np.concatenate([none, *places]), np.concatenate([none, *counts]))


def _distinct(units: list[Unit]) -> Hashes:
    return np.unique(np.concatenate([np.zeros(0, np.uint64), *(u.array("runs") for u in units)]))


def _add(one: Given, told: dict[str, Any]) -> None:
    for name, count in told["read"].items():
        one.read[name] += count
    one.drop(told["dropped"])
    one.tally.add(Tally(**told["tally"]))
    one.failure = one.failure or told["failure"]


def _amount(documents: int, size: int) -> str:
    return f"{documents:,} documents, {size / 1e6:,.1f} MB"
