"""Take the small results that another machine exported: all is verified before anything is written.

A stage that comes in is done: reports read it and runs trust it. What it lacks (weights, text)
stands in its `imported.json`; a run that needs them makes that stage again, and no other.

The hashes in the file show damage and careless edits; who wants to know that nobody packed it anew
compares its SHA-256 with the one that `export` printed.
"""

import hashlib
import json
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bam_lab.errors import InputError
from bam_lab.record import numerics
from bam_lab.record.export import CONTENTS, FORMAT, INDEX, SMALL, Contents
from bam_lab.record.files import (
    explained,
    intact,
    make_folder,
    read_json,
    sha256,
    write_json,
    write_text,
)
from bam_lab.record.fingerprint import fingerprint
from bam_lab.record.lease import acquire, holder
from bam_lab.record.stages import KNOWN_BY, REVISIONS, TEXT
from bam_lab.record.store import IMPORTED, Store, is_key, stage_key

SCORES = "scores.csv"

MAX_BYTES = 2_000_000_000
"""Small results of a large ablation are some MB."""

# RuntimeError: a zip with a password; NotImplementedError: a compression that Python lacks.
_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, ValueError, KeyError, TypeError, EOFError, RuntimeError,
    NotImplementedError,
)  # fmt: skip

SHOWN = 5
"""Problems told of one file; a file that is another version's has one a stage."""


@dataclass(frozen=True)
class Imported:
    """Say what came in.

    Attributes:
        ablation: its key in the store.
        stages: keys of the stages that are new here.
        kept: keys of stages that were done here already; those stay as they are.
        differing: those of them whose scores here are not those of the file.
        lacking: key -> what the stage left where it ran, of the new ones.
    """

    ablation: str
    stages: tuple[str, ...]
    kept: tuple[str, ...]
    differing: tuple[str, ...]
    lacking: dict[str, list[str]]


@dataclass(frozen=True)
class _Archive:
    contents: Contents
    files: dict[str, bytes]
    sha256: str

    @property
    def index_name(self) -> str:
        return f"ablations/{self.contents.ablation}/{INDEX}"

    @property
    def stages(self) -> dict[str, dict[str, bytes]]:
        """Return key -> file name -> bytes."""
        found: dict[str, dict[str, bytes]] = {}
        for name, data in self.files.items():
            kind, key, file = name.split("/")
            if kind == "stages":
                found.setdefault(key, {})[file] = data
        return found


def import_results(store: Store, path: Path, expected: str = "") -> Imported:
    """Put the stages of an exported file into a store.

    Args:
        store: where they go; it takes the file's numerics if it has none yet.
        path: the file.
        expected: the SHA-256 that `export` printed; empty for none.

    Raises:
        InputError: the file is no export, damaged, changed, of another version or other numerics;
            then nothing was written.
    """
    archive = _read(path, expected)
    problems = list(_problems(archive))
    if problems:
        more = f"\n... {len(problems)} problems in all." if len(problems) > SHOWN else ""
        raise InputError("\n".join(f"{path}: {text}" for text in problems[:SHOWN]) + more)
    settled = numerics.of(archive.contents.numerics)
    here = numerics.stored(store)
    if settled and here and settled != here:
        raise InputError(
            f"{path} must have the numerics of {store.root} ({here.precision} on {here.device}), "
            f"got {settled.precision} on {settled.device}: such results are not compared. "
            "Import it into another store with --store."
        )
    store.prepare()
    for key in archive.stages:
        if who := holder(store, key):
            raise InputError(_busy(store, key, who))
    if settled and not here:
        write_json(store.root / numerics.NAME, asdict(settled))
    return _place(store, archive)


def _read(path: Path, expected: str) -> _Archive:
    """Read the file and check every hash."""
    try:
        found = sha256(path)
        if expected and found != expected.strip().lower():
            raise InputError(
                f"{path} must have the SHA-256 {expected}, got {found}. Fetch it again."
            )
        with zipfile.ZipFile(path) as archive:
            whole = sum(entry.file_size for entry in archive.infolist())
            if whole > MAX_BYTES:
                raise InputError(f"{path} must unpack to under 2 GB, got {whole:,} bytes.")
            files = {name: archive.read(name) for name in archive.namelist()}
        told = json.loads(files.pop(CONTENTS))
        if told["format"] != FORMAT:
            raise InputError(
                f"{path} must have format {FORMAT}, got {told['format']}. "
                "Export it again with this version of bam-lab."
            )
        return _Archive(Contents.model_validate(told), files, found)
    except OSError as error:
        raise InputError(
            f"{path} must be readable, got: {error.strerror}. Check the path."
        ) from None
    except _UNREADABLE as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{path} must be a file that `bam-lab export` wrote, got one that is damaged or "
            f"something else ({type(error).__name__}: {reason}). Fetch it again."
        ) from None


def _problems(archive: _Archive) -> Iterator[str]:
    """Yield what is wrong with the file as a whole, else with each stage in it."""
    found = {name: hashlib.sha256(data).hexdigest() for name, data in archive.files.items()}
    wanted = archive.contents.files
    for name in sorted(found.keys() | wanted.keys()):
        if found.get(name) != wanted.get(name):
            state = "changed" if name in found and name in wanted else "added"
            state = state if name in found else "taken out"
            yield f"{name} was {state} since the export. Fetch the file again."
            return
    if not is_key(archive.contents.ablation):
        yield (
            f"{CONTENTS} must name an ablation of a store, got {archive.contents.ablation!r}. "
            "Do not trust it."
        )
        return
    if foreign := [name for name in found if not _is_ours(name, archive.index_name)]:
        yield f"{foreign[0]} must be no part of an export, got it all the same. Do not trust it."
        return
    if not _is_index(archive.files.get(archive.index_name, b"")):
        yield f"{archive.index_name} must list the stages, got no such list. Export it again."
    for key, files in archive.stages.items():
        yield from _stage_problems(key, files, archive.contents.numerics)


def _is_index(text: bytes) -> bool:
    """Say whether a text is an index as far as import reads it."""
    try:
        found = json.loads(text)
        named = {found["ablation"]["id"], found["scale_name"], *found["overrides"]}
        count = found.get("replicates", 0)
    except (KeyError, TypeError, ValueError, RecursionError):
        return False
    return (
        isinstance(found["stages"], list)
        and isinstance(count, int)
        and all(isinstance(name, str) for name in named)
    )


def _is_ours(name: str, index: str) -> bool:
    """Return whether the file is one that `export` writes, at a place inside the store."""
    if name == index:
        return True
    kind, _, rest = name.partition("/")
    key, _, file = rest.partition("/")
    return kind == "stages" and file in SMALL and key.rpartition("-")[0] in REVISIONS


def _stage_problems(
    key: str, files: Mapping[str, bytes], settled: Mapping[str, Any] | None
) -> Iterator[str]:
    """Yield why a stage is not what its name says, or not what this version would make."""
    try:
        spec, manifest = (json.loads(files[name]) for name in ("spec.json", "manifest.json"))
        name = spec["stage"]
        known = KNOWN_BY.get(name, spec["inputs"])
        inputs = {role: value for role, value in spec["inputs"].items() if role in known}
        parts = {"stage": name, "spec": spec["spec"], "inputs": inputs}
        made = fingerprint({**parts, "revision": spec["revision"]})
        used = {field: manifest["numerics"][field] for field in ("precision", "device")}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        yield f"stages/{key} is damaged ({type(error).__name__}: {error}). Export it again."
        return
    if stage_key(name, made) != key:
        yield f"stages/{key} must be what its spec.json says, got another spec. Do not trust it."
    elif spec["revision"] != REVISIONS[name]:
        yield (
            f"stages/{key} must have revision {REVISIONS[name]} of {name}, got "
            f"{spec['revision']}: another version of bam-lab means something else by it. "
            "Run and export it with this version."
        )
    elif name not in TEXT and used != settled:
        told = f"{used['precision']} on {used['device']}"
        yield f"stages/{key} must have the numerics of the whole file, got {told}. Do not trust it."


def _place(store: Store, archive: _Archive) -> Imported:
    """Write each stage whole, the index last."""
    new, kept, differing = [], [], []
    lacking = archive.contents.left_out
    for key, files in archive.stages.items():
        lease = acquire(store, key)
        if lease is None:
            raise InputError(_busy(store, key, holder(store, key) or "another process"))
        try:
            if store.is_done(key):
                kept.append(key)
                if _scores_here(store, key) != files.get(SCORES):
                    differing.append(key)
                continue
            _bring(store, key, files, lacking.get(key, []), archive.sha256)
        finally:
            lease.release()
        new.append(key)
    _place_index(store, archive)
    lacking = {key: lacking[key] for key in new if key in lacking}
    ablation = archive.contents.ablation
    return Imported(ablation, tuple(new), tuple(kept), tuple(differing), lacking)


def _busy(store: Store, key: str, who: str) -> str:
    return (
        f"{store.root}/stages/{key} must be at rest, got {who} working at it. "
        "Wait for it or stop it, then import again."
    )


def _scores_here(store: Store, key: str) -> bytes | None:
    path = store.stage(key) / SCORES
    return path.read_bytes() if path.is_file() else None


def _bring(
    store: Store, key: str, files: Mapping[str, bytes], left_out: list[str], source: str
) -> None:
    folder = make_folder(store.inside("imports", key))
    with explained(folder):
        shutil.rmtree(folder)
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
    write_json(folder / IMPORTED, {"from": source, "left_out": left_out})
    store.adopt(key, folder)


def _place_index(store: Store, archive: _Archive) -> None:
    """Write the index unless one that names as many replicates is here."""
    path = make_folder(store.ablation(archive.contents.ablation)) / INDEX
    coming = json.loads(archive.files[archive.index_name])
    with intact(path):
        here = read_json(path).get("replicates", 0) if path.is_file() else -1
    if here < coming.get("replicates", 0):
        write_text(path, archive.files[archive.index_name].decode())
