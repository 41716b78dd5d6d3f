"""Read local files as documents: which files a source means, and what is in each."""

import contextlib
import errno
import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from stat import S_ISDIR, S_ISREG

from bam_lab.data.sources import lines, parquet
from bam_lab.data.sources.decode import NotText, decode
from bam_lab.data.sources.hashes import content_hash
from bam_lab.data.sources.pieces import LONGEST, PIECE_BYTES, Opened, Piece, Tally
from bam_lab.errors import InputError
from bam_lab.spec.corpus import CorpusSpec, sources_of
from bam_lab.spec.sources import FilesSource, local_folder

TEXTS = (".txt", ".md", ".py")
LINES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
KINDS = (*TEXTS, *LINES, ".parquet")
_FILES_A_PIECE = 1000


def opened(source: FilesSource) -> Opened:
    """Cut the source's files into pieces; small ones share one.

    Raises:
        InputError: there is nothing to read, a file of rows is none, or a setting has no effect.
    """
    found, left_out = _found(source)
    _check_effects(source, {_kind(path) for path in found})
    pieces: list[Piece] = []
    small: list[str] = []
    held = 0
    for path in found:
        parts = _cut(path, source)
        if len(parts) > 1:
            pieces += [*_together(small), *parts]
            small, held = [], 0
        elif parts:
            small.append(str(path))
            held += _size(path)
            if held >= PIECE_BYTES or len(small) == _FILES_A_PIECE:
                pieces += _together(small)
                small, held = [], 0
    notes: tuple[str, ...] = ()
    if left_out:
        told = ", ".join(f"{count} {ending}" for ending, count in sorted(left_out.items())[:8])
        notes = (f"left out files of other kinds: {told}",)
    return Opened((*pieces, *_together(small)), notes=notes)


def _check_effects(source: FilesSource, kinds: set[str]) -> None:
    """Refuse settings that none of the files can use."""
    default = FilesSource.model_fields["text_field"].default
    if source.text_field != default and kinds <= set(TEXTS):
        raise InputError(
            f"{source.name}: text_field must have an effect, got {source.text_field!r} and files "
            f"without fields ({', '.join(sorted(kinds))}). Remove it."
        )
    if source.encoding is not None and kinds == {".parquet"}:
        raise InputError(
            f"{source.name}: encoding must have an effect, got {source.encoding!r} and .parquet "
            "files alone, which say their own. Remove it."
        )


def documents(source: FilesSource, piece: Piece, tally: Tally) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of every document of a piece; empty files are empty documents.

    Raises:
        InputError: a file of lines or rows is damaged; a file vanished since it was opened.
    """
    for part in (piece, *(Piece(path) for path in piece.more)):
        path = Path(part.path)
        name = readable_name(path.relative_to(source.folder))
        match _kind(path):
            case ".parquet":
                yield from parquet.documents(part, name, source.text_field, tally)
            case kind if kind in LINES:
                yield from lines.documents(part, name, source.text_field, source.encoding, tally)
            case _:
                tally.entries += 1
                try:
                    text, detected = decode(_content(path), source.encoding)
                except NotText as error:
                    tally.reject(name, str(error))
                    continue
                if detected is not None:
                    tally.note(f"{name}: no UTF-8, read as {detected} by its looks")
                yield name, text


def readable_name(path: Path) -> str:
    """Return a path with / between its parts, bytes that are no UTF-8 spelled out."""
    return path.as_posix().encode("utf-8", "backslashreplace").decode()


def digest(source: FilesSource) -> str:
    """Return a hash over the names and contents of the source's files.

    Raises:
        InputError: the folder is missing, a link leaves it, or no file in it can be read.
    """
    return _digest(Path(source.folder), _found(source)[0])


def inputs_digest(spec: CorpusSpec) -> str:
    """Return a hash over the local files that the corpus reads; empty if it reads none.

    Raises:
        InputError: one of them is missing.
    """
    text = ""
    for source in sources_of(spec):
        if isinstance(source, FilesSource):
            text += f"{source.name} {digest(source)}\n"
        elif (found := local_folder(source)) is not None:
            folder = Path(found)
            inside = sorted(path for path in folder.rglob("*") if path.is_file())
            text += f"{source.name} {_digest(folder, inside)}\n"
    return hashlib.sha256(text.encode()).hexdigest() if text else ""


def _digest(folder: Path, files: list[Path]) -> str:
    total = hashlib.sha256()
    for path in files:
        total.update(os.fsencode(path.relative_to(folder).as_posix()) + b"\0")
        total.update(content_hash(path))
    return total.hexdigest()


def _found(source: FilesSource) -> tuple[list[Path], Counter[str]]:
    """Return the source's files, by name, and the endings of other kinds; hidden ones are none."""
    folder = Path(source.folder)
    try:
        is_folder = S_ISDIR(folder.stat().st_mode)
        list(os.scandir(folder)) if is_folder else None
    except OSError as error:
        raise InputError(
            f"{source.name}: folder must exist and be readable, got {folder} ({error.strerror}). "
            "Mend it in the corpus; a domain of your own: `bam-lab data add ... --replace`."
        ) from None
    if not is_folder:
        raise InputError(
            f"{source.name}: folder must be a folder, got the file {folder}. Name the folder that "
            "it is in, and the file as pattern."
        )
    left_out: Counter[str] = Counter()
    found = []
    matched = 0
    for path in sorted(_matches(folder, source.pattern)):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        matched += 1
        if _kind(path) not in KINDS:
            left_out[path.suffix or "without ending"] += 1
        else:
            _see_inside(source, folder, path)
            found.append(path)
    if not matched:
        raise InputError(
            f"{source.name}: pattern must match a file of {folder}, got {source.pattern!r}. "
            "Mend it in the corpus."
        )
    if not found:
        raise InputError(
            f"{source.name}: pattern must match files that end in {', '.join(KINDS)}, got "
            f"{', '.join(sorted(left_out))} by {source.pattern!r}. Turn them into one of these."
        )
    return found, left_out


def _matches(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield the files, and the links that lead nowhere, that a pattern inside the folder finds."""
    parts = PurePosixPath(pattern)
    if not parts.parts or parts.is_absolute() or ".." in parts.parts or "\0" in pattern:
        return
    try:
        found = list(folder.glob(pattern))
    except ValueError as error:  # `a**b`, before Python 3.13
        raise InputError(
            f"pattern must be one that Python's glob takes, got {pattern!r} ({error}). "
            "Mend it in the corpus."
        ) from None
    except OSError as error:
        raise InputError(
            f"{error.filename or folder}: must be readable, got: {error.strerror}. "
            "Mend it, or run the same command again."
        ) from None
    for path in found:
        try:
            mode = path.stat().st_mode
        except OSError:
            with contextlib.suppress(FileNotFoundError):  # it went since its folder was read
                if not S_ISDIR(path.lstat().st_mode):
                    yield path
        else:
            if S_ISREG(mode):  # no folders, and no pipe that would wait for ever
                yield path


def _see_inside(source: FilesSource, folder: Path, path: Path) -> None:
    """See that no link on the way to a file leaves the folder."""
    try:
        real = path.resolve()
    except (OSError, RuntimeError):  # a link to itself: told when it is read
        return
    if not real.is_relative_to(folder.resolve()):
        raise InputError(
            f"{source.name}: files must lie in {folder}, got {path}, a link to {real}. "
            "Copy it there, or narrow the pattern."
        )


def _kind(path: Path) -> str:
    name = path.name.lower()
    return next((kind for kind in KINDS if name.endswith(kind)), "")


def _cut(path: Path, source: FilesSource) -> list[Piece]:
    match _kind(path):
        case ".parquet":
            return parquet.cut(path, source.text_field)
        case ".jsonl":
            try:
                return lines.cut(path, source.encoding) or [Piece(str(path))]
            except OSError as error:
                raise InputError(
                    f"{path}: must be readable, got: {error.strerror}. Mend or remove it."
                ) from None
        case _:
            return [Piece(str(path))]


def _together(small: list[str]) -> list[Piece]:
    return [Piece(small[0], more=tuple(small[1:]))] if small else []


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(LONGEST + 1)
    except OSError as error:
        if error.errno == errno.ENOENT and not path.is_symlink():
            raise InputError(
                f"{path}: must stay while it is read, got: it is gone. Run the same command again."
            ) from None
        raise NotText(f"must be readable, got: {error.strerror}") from None
    if len(content) > LONGEST:
        raise NotText(
            f"must have at most {LONGEST / 1e6:.0f} MB, got {_size(path) / 1e6:.0f} MB; "
            "cut it into documents"
        )
    return content
