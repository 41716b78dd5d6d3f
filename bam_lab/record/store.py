"""The store: where every stage's results live, and how a stage becomes visible.

stages/<name>-<fingerprint16>/   finished: has DONE, written last
work/<name>-<fingerprint16>/     in progress: resumed or redone, never read as a result
failures/<name>-<fp>.json        why the last attempt failed
leases/<name>-<fp>.json          who is at it (`lease.py`)
ablations/<id>-<scale>/          index.json of one ablation
reports/<id>-<scale>/            its report, unless another folder is asked for
cache/                           downloads of the corpus build
logs/                            what worker processes printed
imports/                         stages that are just coming in
numerics.json                    settled once (`numerics.py`)
"""

import contextlib
import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bam_lab.errors import InputError
from bam_lab.record.files import (
    explained,
    intact,
    make_folder,
    read_json,
    sync_folder,
    sync_tree,
    write_json,
    write_text,
)

DEFAULT = ".bam-lab"
VARIABLE = "BAM_LAB_STORE"
IMPORTED = "imported.json"
"""Stands in the folder of a stage that was imported: from which file, and what it lacks."""
_KEY = re.compile(r"[a-z0-9][a-z0-9_.-]*")


def store_root(option: Path | None) -> Path:
    """Return the store's folder: `--store`, else `BAM_LAB_STORE`, else `.bam-lab`."""
    if option is not None:
        return option
    return Path(os.environ.get(VARIABLE) or DEFAULT)


def is_key(name: str) -> bool:
    """Say whether a name may be a folder of a store: it is plain, and leads nowhere else."""
    return bool(_KEY.fullmatch(name)) and ".." not in name


def stage_key(name: str, fingerprint: str) -> str:
    """Return the folder name of a stage: its name and 16 digits of its fingerprint."""
    return f"{name}-{fingerprint[:16]}"


@dataclass(frozen=True)
class Store:
    """Know the paths of one store, and publish stages into it."""

    root: Path

    def prepare(self) -> None:
        """Create the folders, and see that they can be written.

        Raises:
            InputError: they cannot; says why and what to do.
        """
        for name in ("stages", "work", "failures", "leases", "ablations", "cache", "logs"):
            make_folder(self.root / name)
        write_text(self.root / ".writable", "")

    def inside(self, kind: str, key: str) -> Path:
        """Return `root/kind/key`.

        Raises:
            InputError: the key would leave the store.
        """
        if not is_key(key):
            raise InputError(
                f"{key!r} must be a plain name of the store (small letters, digits, - _ .). "
                "See `bam-lab runs list` for the names."
            )
        return self.root / kind / key

    def stage(self, key: str) -> Path:
        """Return the folder of a finished stage."""
        return self.inside("stages", key)

    def work(self, key: str) -> Path:
        """Return the folder of a stage in progress."""
        return self.inside("work", key)

    def ablation(self, key: str) -> Path:
        """Return the folder of an ablation's index and reports."""
        return self.inside("ablations", key)

    @property
    def cache(self) -> Path:
        """The folder of downloads, shared by all corpora."""
        return self.root / "cache"

    def is_done(self, key: str) -> bool:
        """Say whether the stage's results may be read."""
        return (self.stage(key) / "DONE").is_file()

    def left_out(self, key: str) -> list[str]:
        """Return what an imported stage lacks (`export.py`); nothing of one that ran here."""
        path = self.stage(key) / IMPORTED
        try:
            with intact(path):
                return list(read_json(path)["left_out"])
        except FileNotFoundError:
            return []

    def is_whole(self, key: str) -> bool:
        """Say whether the stage is done, and other stages can read its weights or text here."""
        return self.is_done(key) and not self.left_out(key)

    def open_work(self, key: str) -> Path:
        """Return the stage's work folder, made if missing; a half-published stage is taken back.

        The caller holds the stage's lease.
        """
        work, final = self.work(key), self.stage(key)
        with explained(work):
            if final.is_dir() and not self.is_done(key):
                # A crash fell between the rename and DONE.
                shutil.rmtree(work, ignore_errors=True)
                final.rename(work)
            work.mkdir(parents=True, exist_ok=True)
        return work

    def publish(self, key: str) -> None:
        """Make a finished work folder visible: flush, rename, then DONE.

        Where the stage was imported without what has now been made, this takes its place.
        The caller holds the lease.

        Raises:
            InputError: it was imported, and its text is not what was made here.
        """
        work = self.work(key)
        if self.is_done(key):
            _same_text(self.stage(key), work)
        self._show(work, key)

    def adopt(self, key: str, folder: Path) -> None:
        """Make a stage that was done elsewhere visible; the caller holds the lease."""
        if self.stage(key).is_dir() and not self.is_done(key):
            self.open_work(key)  # takes back what a crash left half-published
        self._show(folder, key)

    def _show(self, folder: Path, key: str) -> None:
        final, aside = self.stage(key), self.work(f"{key}.imported")
        with explained(final):
            sync_tree(folder)
            final.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(aside, ignore_errors=True)
            if final.is_dir():
                final.rename(aside)
            folder.rename(final)
            sync_folder(final.parent)
            write_text(final / "DONE", "")
            sync_folder(final)
            shutil.rmtree(aside, ignore_errors=True)
        self.clear_failure(key)

    def done_keys(self) -> list[str]:
        """Return the keys of all finished stages, sorted."""
        folder = self.root / "stages"
        if not folder.is_dir():
            return []
        return sorted(p.name for p in folder.iterdir() if (p / "DONE").is_file())

    def failure(self, key: str) -> dict[str, Any] | None:
        """Return why the stage's last attempt failed, or None."""
        path = self.inside("failures", f"{key}.json")
        try:
            with intact(path):
                return dict(read_json(path))
        except FileNotFoundError:
            return None

    def write_failure(self, key: str, failure: dict[str, Any]) -> None:
        """Record why an attempt failed: reason, step, lr, last_checkpoint."""
        path = self.inside("failures", f"{key}.json")
        make_folder(path.parent)
        write_json(path, {"time": time.time(), **failure})

    def clear_failure(self, key: str) -> None:
        """Forget an earlier failure."""
        with contextlib.suppress(FileNotFoundError):
            self.inside("failures", f"{key}.json").unlink()


def _same_text(imported: Path, made: Path) -> None:
    """See that text which is made again is the text that the imported results are about."""
    with intact(imported):
        theirs = read_json(imported / "manifest.json")["facts"].get("digest")
    ours = read_json(made / "manifest.json")["facts"].get("digest")
    if theirs != ours:
        raise InputError(
            f"{imported} must hold the text that the imported results are about (digest "
            f"{str(theirs)[:16]}…), got other text when it was made again here ({str(ours)[:16]}…):"
            " its sources have changed. Run the ablation in another store with --store."
        )
