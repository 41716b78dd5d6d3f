"""Hash a built corpus again, and the tokens that come from it, against what their records say."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bam_lab.cli.data_show import SPLITS, encoded
from bam_lab.record.files import intact, read_json, sha256
from bam_lab.record.store import Store


def verify(store: Store, folder: Path) -> tuple[int, list[str]]:
    """Return how many files were read, and what is wrong: one line a file.

    Raises:
        InputError: the record itself is damaged.
    """
    with intact(folder):
        manifest = read_json(folder / "corpus.json")
        count, problems = len(manifest["files"]), list(_corpus(folder, manifest))
    for key, tokens in encoded(store, manifest["digest"]):
        names = [
            f"{domain}.{split}{ending}"
            for domain in tokens["tokens"]
            for split in SPLITS
            for ending in (".npy", ".documents.npy")
        ]
        count += len(names)
        problems += _tokens(store.stage(key) / "tokens", names, tokens["digest"])
    return count, problems


def _corpus(folder: Path, manifest: dict[str, Any]) -> Iterator[str]:
    for name, wanted in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            yield f"{path} is missing."
        elif (found := sha256(path)) != wanted:
            yield f"{path} differs: its SHA-256 must be {wanted[:16]}…, got {found[:16]}…."
    for path in sorted(folder.glob("*.jsonl")):
        if path.name not in manifest["files"]:
            yield f"{path} is no part of the corpus."
    listed = "".join(f"{name} {wanted}\n" for name, wanted in sorted(manifest["files"].items()))
    if hashlib.sha256(listed.encode()).hexdigest() != manifest["digest"]:
        yield f"{folder / 'corpus.json'} differs: its digest is not that of the files it lists."


def _tokens(folder: Path, names: list[str], wanted: str) -> Iterator[str]:
    from bam_lab.data.arrays import digest

    lacking = [folder / name for name in names if not (folder / name).is_file()]
    for path in lacking:
        yield f"{path} is missing."
    if lacking:
        return
    if digest(folder) != wanted:
        yield f"{folder} differs: the digest of its arrays is not that of tokens.json."
