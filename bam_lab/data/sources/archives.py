"""Read members of archives: wheels, zip, tar, .tgz, .deb; nothing is unpacked to disk.

An archive may be hostile. Links are never followed, a member whose name leaves its folder is an
error, and so is an archive of absurd size: declared sizes of zip members, and every byte that a tar
really gives, are held against `MEMBER_BYTES`, `TOTAL_BYTES` and `RATIO`. A .deb is an `ar` archive
of three members, of which `data.tar.*` holds the files.
"""

import bz2
import fnmatch
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any

from bam_lab.data.sources.unpack import zstandard
from bam_lab.errors import InputError

# The largest honest archive that a shipped corpus reads: 61,000 members, 780 MB, ratio 19; a
# decompression bomb has a ratio of 1,000 (deflate) to 10^6.
MEMBERS = 500_000
MEMBER_BYTES = 512_000_000
TOTAL_BYTES = 4_000_000_000
RATIO = 200
RATIO_FROM_BYTES = 50_000_000  # below it, a high ratio does no harm (tables of zeros)

_AR_MAGIC = b"!<arch>\n"
_AR_HEADER = 60


def members(path: Path, patterns: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of an archive's files that match a pattern.

    Zip members come by name, tar members as they stand (a tar is read once, from start to end).

    Raises:
        InputError: it is not a whole archive, or not one that can be trusted.
    """
    try:
        if path.suffix in (".whl", ".zip"):
            yield from _zip_members(path, patterns)
        elif path.suffix == ".deb":
            yield from _deb_members(path, patterns)
        else:
            with path.open("rb") as file:
                yield from _tar_members(path, _decompressed(path.name, file), patterns)
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        lzma.LZMAError,
        zlib.error,
        EOFError,
        OSError,
        NotImplementedError,
    ) as error:
        raise InputError(
            f"{path.name} must be a whole archive, got {_without(path, error)}. "
            "Delete it from the folder of downloads to download it again."
        ) from error


def gunzip(name: str, content: bytes) -> bytes:
    """Return the content of a gzip file that stands inside an archive.

    Raises:
        InputError: it is too large once unpacked, or broken.
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            unpacked = file.read(MEMBER_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name} must be whole gzip data, got {error}.") from None
    _check_size(name, len(unpacked), MEMBER_BYTES)
    _check_ratio(name, len(unpacked), len(content))
    return unpacked


def _zip_members(path: Path, patterns: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        _check_count(path.name, len(infos))
        wanted = []
        for info in infos:
            _check_name(path.name, info.filename)
            link = stat.S_ISLNK(info.external_attr >> 16)
            if not link and not info.is_dir() and _matches(info.filename, patterns):
                _check_size(f"{path.name}: {info.filename}", info.file_size, MEMBER_BYTES)
                wanted.append(info)
        total = sum(info.file_size for info in wanted)
        _check_size(path.name, total, TOTAL_BYTES)
        _check_ratio(path.name, total, path.stat().st_size)
        for info in sorted(wanted, key=lambda info: info.filename):
            yield info.filename, archive.read(info)  # never more than the declared size


def _tar_members(
    path: Path, file: IO[bytes], patterns: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    bounded: Any = _Bounded(path.name, file, path.stat().st_size)
    with tarfile.open(fileobj=bounded, mode="r:") as archive:
        for count, member in enumerate(archive, start=1):
            _check_count(path.name, count)
            name = member.name.removeprefix("./")
            _check_name(path.name, name)
            if member.isfile() and _matches(name, patterns):
                _check_size(f"{path.name}: {name}", member.size, MEMBER_BYTES)
                content = archive.extractfile(member)
                assert content is not None
                yield name, content.read()
            archive.members = []  # type: ignore[attr-defined]  # it would remember them all


def _deb_members(path: Path, patterns: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    with path.open("rb") as file:
        if file.read(len(_AR_MAGIC)) != _AR_MAGIC:
            raise tarfile.ReadError("a file that is no Debian package")
        while header := file.read(_AR_HEADER):
            if len(header) < _AR_HEADER or header[58:] != b"`\n":
                raise tarfile.ReadError("a broken member header")
            name = header[:16].decode("ascii", errors="replace").strip().rstrip("/")
            size = int(header[48:58])
            if name.startswith("data.tar"):
                window: Any = _Window(file, size)
                yield from _tar_members(path, _decompressed(name, window), patterns)
                return
            file.seek(size + size % 2, io.SEEK_CUR)
        raise tarfile.ReadError("a Debian package without data.tar")


def _decompressed(name: str, file: IO[bytes]) -> IO[bytes]:
    match name.rpartition(".")[2]:
        case "gz" | "tgz":
            return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
        case "xz":
            return lzma.LZMAFile(file)
        case "bz2":
            return bz2.BZ2File(file)
        case "zst":
            return zstandard(name, file)
        case _:
            return file


class _Window:
    """Show `size` bytes of a file from where it stands, as a file of their own."""

    def __init__(self, file: IO[bytes], size: int):
        self._file, self._left = file, size
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(content)
        return content

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


class _Bounded:
    """Pass on an unpacked stream from start to end, and refuse to go on when it becomes absurd."""

    def __init__(self, name: str, file: IO[bytes], packed_bytes: int):
        self._name, self._file, self._packed = name, file, packed_bytes
        self._position = 0

    def read(self, size: int) -> bytes:
        _check_size(self._name, size, MEMBER_BYTES)
        parts = []
        # In steps: a bomb is to be met before it is unpacked as a whole.
        while size > 0 and (part := self._file.read(min(size, 1 << 20))):
            parts.append(part)
            size -= len(part)
            self._position += len(part)
            _check_size(self._name, self._position, TOTAL_BYTES)
            _check_ratio(self._name, self._position, self._packed)
        return b"".join(parts)

    def seek(self, position: int) -> int:
        assert position >= self._position, "a tar is read forwards"
        while self._position < position and self.read(min(position - self._position, 1 << 24)):
            pass
        return self._position

    def tell(self) -> int:
        return self._position


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _check_name(archive: str, name: str) -> None:
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or "\0" in name:
        raise InputError(
            f"{archive} must hold no file outside its own folder, got {name!r}. "
            "Do not trust this package."
        )


def _check_count(archive: str, count: int) -> None:
    if count > MEMBERS:
        raise InputError(
            f"{archive} must hold at most {MEMBERS:,} files, got more. Do not trust this package."
        )


def _check_size(what: str, size: int, limit: int) -> None:
    if size > limit:
        raise InputError(
            f"{what} must unpack to at most {limit / 1e6:,.0f} MB, got more. "
            "Narrow the source's members; if it should be small, do not trust this package."
        )


def _check_ratio(what: str, unpacked: int, packed: int) -> None:
    if unpacked > RATIO_FROM_BYTES and unpacked > RATIO * max(packed, 1):
        raise InputError(
            f"{what} must unpack to at most {RATIO} times its size, got more. "
            "Do not trust this package."
        )


def _without(path: Path, error: BaseException) -> str:
    """Return an error's words without the folder, which no record should hold."""
    return str(error).replace(str(path), path.name) or type(error).__name__
