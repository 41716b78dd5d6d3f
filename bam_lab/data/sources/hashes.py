"""Hash local files; those of big ones are remembered, for every command asks.

Remembered beside no store and no data, since neither is known to be the user's to write to:
`$XDG_CACHE_HOME/bam-lab/hashes`, one small file for each. Deleting them costs only time.
"""

import contextlib
import hashlib
import os
import time
from pathlib import Path

from bam_lab.errors import InputError
from bam_lab.record.files import make_folder, read_json, sha256, write_json

BIG = 16_000_000
_SETTLED_NS = 2_000_000_000
"""A file changed more recently could change again within one tick of its clock."""


def content_hash(path: Path) -> bytes:
    """Return the SHA-256 of a file's content; of the reason, where it cannot be read."""
    try:
        told = path.stat()
        if told.st_size < BIG:
            return bytes.fromhex(sha256(path))
        # The time of the last change of any kind cannot be set back, as that of content can.
        state = [told.st_size, told.st_mtime_ns, told.st_ctime_ns, told.st_ino]
        memory = _memory(path)
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            known = read_json(memory)
            if known["state"] == state:
                return bytes.fromhex(known["sha256"])
        before = time.time_ns()
        found = sha256(path)
    except OSError as error:
        return hashlib.sha256(f"unreadable: {error.errno}".encode()).digest()
    if before - max(told.st_mtime_ns, told.st_ctime_ns) > _SETTLED_NS:
        with contextlib.suppress(OSError, InputError):  # a home that cannot be written to
            make_folder(memory.parent)
            write_json(memory, {"state": state, "sha256": found})
    return bytes.fromhex(found)


def _memory(path: Path) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    name = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()
    return Path(base) / "bam-lab" / "hashes" / f"{name}.json"
