"""Know a Hugging Face encoder by what its folder holds; nothing heavy is imported for it."""

import hashlib
from pathlib import Path

from bam_lab.data.sources.hashes import content_hash
from bam_lab.errors import InputError


def encoder_digest(folder: Path) -> str:
    """Return a digest of what an encoder's folder holds, whatever it is called.

    Raises:
        InputError: there is no such folder, or no config.json in it.
    """
    if not (folder / "config.json").is_file():
        raise InputError(
            "embedder must be tfidf_svd, minilm or the folder of a Hugging Face encoder, got "
            f"{str(folder)!r}, where no config.json is. Mend the path; it counts from where "
            "bam-lab is called."
        )
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            digest.update(f"{path.name} {content_hash(path).hex()}\n".encode())
    return digest.hexdigest()
