"""Read local files as documents."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from bam_lab.errors import InputError
from bam_lab.spec.corpus import CorpusSpec, FilesSource

_SUFFIXES = (".jsonl", ".md", ".py", ".txt")


def paths(source: FilesSource) -> list[Path]:
    """Return the source's files, by name.

    Raises:
        InputError: the folder is missing, or no file in it matches.
    """
    folder = Path(source.folder)
    if not folder.is_dir():
        raise InputError(f"{source.name}: folder must exist, got {folder}. Mend it in the corpus.")
    parts = PurePosixPath(source.pattern)
    inside = bool(parts.parts) and not parts.is_absolute() and ".." not in parts.parts
    found = sorted(p for p in folder.glob(source.pattern) if p.is_file()) if inside else []
    if not found:
        raise InputError(
            f"{source.name}: pattern must match a file of {folder}, got {source.pattern!r}. "
            "Mend it in the corpus."
        )
    return found


def digest(source: FilesSource) -> str:
    """Return a hash over the names and contents of the source's files."""
    total = hashlib.sha256()
    for path in paths(source):
        total.update(path.relative_to(source.folder).as_posix().encode() + b"\0")
        total.update(hashlib.sha256(_content(path)).digest())
    return total.hexdigest()


def inputs_digest(spec: CorpusSpec) -> str:
    """Return a hash over the local files that the corpus reads; empty if it reads none.

    Raises:
        InputError: one of them is missing.
    """
    local = [
        source
        for domain in spec.domains.values()
        for source in domain.sources
        if isinstance(source, FilesSource)
    ]
    if not local:
        return ""
    text = "".join(f"{source.name} {digest(source)}\n" for source in local)
    return hashlib.sha256(text.encode()).hexdigest()


def documents(source: FilesSource) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of every document.

    Raises:
        InputError: a file is empty, not text, of an unknown kind, or a line has no such field.
    """
    for path in paths(source):
        name = path.relative_to(source.folder).as_posix()
        text = _text(path)
        if path.suffix == ".jsonl":
            for number, line in enumerate(text.split("\n"), start=1):
                if line.strip():
                    yield f"{name}#{number}", _field(path, number, line, source.text_field)
        else:
            yield name, text


def _text(path: Path) -> str:
    if path.suffix not in _SUFFIXES:
        raise InputError(
            f"{path}: must end in {', '.join(_SUFFIXES)}, got {path.suffix or 'no ending'!r}. "
            "Narrow the source's pattern."
        )
    content = _content(path)
    if not content.strip():
        raise InputError(f"{path}: must hold text, got an empty file. Fill it or remove it.")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: must be UTF-8 text, got {error}. Convert or remove it."
        ) from None
    if "\0" in text:
        raise InputError(f"{path}: must be text, got binary data. Remove it.")
    return text


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: must be readable, got: {error.strerror}. Mend it.") from None


def _field(path: Path, number: int, line: str, field: str) -> str:
    try:
        value = json.loads(line)[field]
        str(value).encode()  # JSON can spell half a surrogate pair, which no text file can hold
    except (ValueError, KeyError, TypeError, RecursionError):
        value = None
    if not isinstance(value, str):
        raise InputError(
            f"{path}:{number}: must be a JSON object with the text in {field!r}, got "
            f"{line[:60]!r}. Mend the line or the source's text_field."
        )
    return value
