"""Reading archives, honest and hostile ones."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pyarrow
import pytest

from bam_lab.data.sources import archives
from bam_lab.errors import InputError


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return path


def tarred(members):
    """Return a tar's bytes; a member is its content or a whole TarInfo."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def debian(path, name, data):
    """Write a .deb whose files are in the member `name`."""
    with path.open("wb") as file:
        file.write(b"!<arch>\n")
        for member, content in (
            ("debian-binary", b"2.0\n"),
            ("control.tar.xz", b"odd"),
            (name, data),
        ):
            head = f"{member:16}{0:<12}{0:<6}{0:<6}{'100644':8}{len(content):<10}`\n"
            file.write(head.encode() + content + b"\n" * (len(content) % 2))
    return path


def read(path, *patterns):
    return list(archives.members(path, patterns or ("*",)))


PACKED = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pyarrow.compress(data, "zstd", asbytes=True),
}
TEXTS = {"x/b.txt": b"B" * 70_000, "x/a.txt": b"A", "x/c.py": b"C"}


def test_zip_members_come_by_name(tmp_path):
    path = zipped(tmp_path / "x.whl", TEXTS)
    assert read(path, "*.txt") == [("x/a.txt", b"A"), ("x/b.txt", b"B" * 70_000)]


@pytest.mark.parametrize("ending", PACKED)
def test_tar_members_come_as_they_stand(tmp_path, ending):
    path = tmp_path / f"x.tar{ending}"
    path.write_bytes(PACKED[ending](tarred(TEXTS)))
    assert read(path, "*.txt") == [("x/b.txt", b"B" * 70_000), ("x/a.txt", b"A")]
    assert read(path, "*.py") == [("x/c.py", b"C")]


@pytest.mark.parametrize("ending", PACKED)
def test_debian_packages_are_read_without_dpkg(tmp_path, ending):
    data = PACKED[ending](tarred({f"./usr/{name}": text for name, text in TEXTS.items()}))
    path = debian(tmp_path / "x_1_all.deb", f"data.tar{ending}", data)
    assert read(path, "usr/*.txt") == [("usr/x/b.txt", b"B" * 70_000), ("usr/x/a.txt", b"A")]


@pytest.mark.parametrize("name", ["x.whl", "x.tar.gz", "x.tgz", "x.tar.xz", "x.deb"])
@pytest.mark.parametrize("content", [b"", b"\0\1binary", b"!<arch>\nshort"])
def test_half_an_archive_is_refused(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"^{name} must be a whole archive"):
        read(path)


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
def test_a_truncated_tar_is_refused(tmp_path, ending):
    noise = bytes(range(256)) * 40 + lzma.compress(b"z" * 99)
    data = PACKED[ending](tarred({"a.txt": noise, "b.txt": noise[::-1]}))
    path = tmp_path / f"x.tar{ending}"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="must be a whole archive"):
        read(path)


@pytest.mark.parametrize("cut", [200, 20])
def test_a_truncated_zip_is_refused(tmp_path, cut):
    path = zipped(tmp_path / "x.whl", TEXTS)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(InputError, match="must be a whole archive"):
        read(path)


def link(name, target, kind):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_links_are_not_followed(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    path = tmp_path / "x.tar.gz"
    members = {
        "a.txt": link("a.txt", str(secret), tarfile.SYMTYPE),
        "b.txt": link("b.txt", str(secret), tarfile.LNKTYPE),
        "c.txt": link("c.txt", "", tarfile.FIFOTYPE),
        "d.txt": b"D",
    }
    path.write_bytes(gzip.compress(tarred(members)))
    assert read(path) == [("d.txt", b"D")]
    wheel = tmp_path / "x.whl"
    info = zipfile.ZipInfo("a.txt")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(info, str(secret))
        archive.writestr("d.txt", "D")
    assert read(wheel) == [("d.txt", b"D")]


@pytest.mark.parametrize("name", ["../a.txt", "/etc/a.txt", "x/../../a.txt", "..\\a.txt"])
def test_a_member_outside_its_folder_is_refused(tmp_path, name):
    wheel = zipped(tmp_path / "x.whl", {name: b"A"})
    tar = tmp_path / "x.tar.gz"
    tar.write_bytes(gzip.compress(tarred({name: b"A"})))
    for path in (wheel, tar):
        with pytest.raises(InputError, match="must hold no file outside its own folder"):
            read(path, "*.py")  # even if nobody asks for it


BOMB = bytes(60_000_000)


def test_bombs_are_met_before_they_are_unpacked(tmp_path, monkeypatch):
    wheel = zipped(tmp_path / "x.whl", {"a.txt": BOMB})
    tar = tmp_path / "x.tar.gz"
    tar.write_bytes(gzip.compress(tarred({"b.txt": BOMB, "a.txt": b"A"})))
    for path, pattern in ((wheel, "*"), (tar, "*"), (tar, "a.txt")):
        with pytest.raises(InputError, match="must unpack to at most 200 times its size"):
            read(path, pattern)
    with pytest.raises(InputError, match="must unpack to at most 200 times its size"):
        archives.gunzip("a.gz", gzip.compress(BOMB))
    monkeypatch.setattr(archives, "MEMBER_BYTES", 1_000_000)
    for path in (wheel, tar):
        with pytest.raises(InputError, match="must unpack to at most 1 MB"):
            read(path)
    with pytest.raises(InputError, match="must unpack to at most 1 MB"):
        archives.gunzip("a.gz", gzip.compress(BOMB))


def test_sizes_add_up(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "TOTAL_BYTES", 100_000)
    members = {f"{n}.txt": bytes([n]) * 30_000 for n in range(4)}
    wheel = zipped(tmp_path / "x.whl", members)
    tar = tmp_path / "x.tar"
    tar.write_bytes(tarred(members))
    for path in (wheel, tar):
        with pytest.raises(InputError, match="must unpack to at most 0 MB"):
            read(path)
    assert len(read(wheel, "[0-2].txt")) == 3  # what is not read costs a zip nothing


def test_a_header_that_claims_too_much_is_refused(tmp_path):
    """A name of 2 GB, which tarfile would read into memory at once."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2_000_000_000
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024)))
    with pytest.raises(InputError, match="must unpack to at most 512 MB"):
        read(path)


def test_too_many_members_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MEMBERS", 2)
    tar = tmp_path / "x.tar"
    tar.write_bytes(tarred(TEXTS))
    for path in (zipped(tmp_path / "x.whl", TEXTS), tar):
        with pytest.raises(InputError, match="must hold at most 2 files"):
            read(path)


def test_errors_name_no_folder(tmp_path):
    with pytest.raises(InputError) as caught:
        read(tmp_path / "missing.whl")
    assert str(tmp_path) not in str(caught.value)
