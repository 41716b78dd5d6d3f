"""Pack the small results of one ablation into a file: what a report reads, no weights, no text.

The file is a zip whose bytes depend on the results alone:

    export.json                 format, numerics, the SHA-256 of every file, what was left out
    ablations/KEY/index.json
    stages/KEY/...              the files of `SMALL` that the stage has

`imported.py` reads it on another machine.
"""

import contextlib
import hashlib
import os
import zipfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from bam_lab.errors import InputError
from bam_lab.record import ledger, metrics, numerics
from bam_lab.record.files import explained, intact, read_json, sha256
from bam_lab.record.store import IMPORTED, Store
from bam_lab.spec.base import Spec

FORMAT = 1
CONTENTS = "export.json"
INDEX = "index.json"
SMALL = (
    "spec.json",
    "manifest.json",
    ledger.NAME,
    metrics.NAME,
    "scores.csv",
    "documents.csv",  # of older evaluations
    "documents.parquet",
    "receipt.json",
    "corpus.json",
    "crossed.json",
    "order.json",
    "calibration.json",
    "answers.json",
    "tokens.csv",
    "turns.json",
    "left_out.json",
)
"""All that travels. A list of what may, not of what may not: weights and text never slip in."""

_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip can say: no time of day in the bytes


class Contents(Spec):
    """Hold `export.json`: what the file says of itself.

    Attributes:
        ablation: key of the ablation in a store.
        numerics: precision and device of all that was trained; None where nothing was.
        left_out: stage key -> what the stage has where it ran, and the file does not.
        files: path in the file -> SHA-256.
    """

    format: int = FORMAT
    ablation: str
    numerics: dict[str, str] | None
    left_out: dict[str, list[str]]
    files: dict[str, str]


@dataclass(frozen=True)
class Exported:
    """Say what was packed.

    Attributes:
        stages: finished stages in the file.
        missing: stages of the ablation that are not finished, and so not in it.
        sha256: of the whole file; who imports it can compare.
    """

    path: Path
    stages: int
    missing: int
    bytes: int
    sha256: str


def export(store: Store, ablation: str, to: Path) -> Exported:
    """Write the finished stages of an ablation, without weights and text, into one file.

    Args:
        store: where they are.
        ablation: key of the ablation in the store, `<id>-<scale>`.
        to: the file to write; it must not be there yet.

    Raises:
        InputError: nothing of the ablation is finished, a stage is damaged, or the file cannot be
            written or is there already.
    """
    index = store.ablation(ablation) / INDEX
    if not index.is_file():
        raise InputError(
            f"{index} is missing: nothing of this ablation is in the store. "
            "Start it with `bam-lab run`."
        )
    with intact(index):
        named = list(dict.fromkeys(row["key"] for row in read_json(index)["stages"]))
        keys = [key for key in named if store.is_done(key)]
    if not keys:
        raise InputError(
            f"{ablation} must have a finished stage to export, got none in {store.root}. "
            "Do them with `bam-lab run`."
        )
    files = {f"ablations/{ablation}/{INDEX}": index.read_bytes()}
    left_out = {}
    for key in keys:
        folder = store.stage(key)
        files |= {f"stages/{key}/{path.name}": path.read_bytes() for path in _small(folder)}
        lacking = {*store.left_out(key), *_left_out(folder)}
        if lacking:
            left_out[key] = sorted(lacking)
    settled = numerics.stored(store)
    contents = Contents(
        ablation=ablation,
        numerics=asdict(settled) if settled else None,
        left_out=left_out,
        files={name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    )
    _write(to, contents, files)
    return Exported(to, len(keys), len(named) - len(keys), to.stat().st_size, sha256(to))


def _left_out(folder: Path) -> Iterable[str]:
    """Return what a stage has and the file does not get: weights, text, tokens."""
    kept = {*SMALL, "DONE", IMPORTED}
    return (path.name for path in folder.iterdir() if path.name not in kept)


def _small(folder: Path) -> Iterable[Path]:
    with intact(folder):
        for name in ("spec.json", "manifest.json"):
            if not (folder / name).is_file():
                raise ValueError(f"{name} is missing")
    return (folder / name for name in SMALL if (folder / name).is_file())


def _write(to: Path, contents: Contents, files: dict[str, bytes]) -> None:
    text = contents.model_dump_json(indent=1) + "\n"
    if os.path.lexists(to):
        raise InputError(f"{to} must not be there yet. Choose another name with --to.")
    temporary = to.with_name(f".{to.name}.tmp")
    try:
        with (
            explained(to, "--to"),
            zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for name, data in {CONTENTS: text.encode(), **files}.items():
                archive.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_DEFLATED)
        with explained(to, "--to"):
            temporary.replace(to)
    except FileNotFoundError:
        raise InputError(f"{to.parent} must be a folder, got none. Make it first.") from None
    finally:
        with contextlib.suppress(OSError):  # where it could not be made, it is not there either
            temporary.unlink()
