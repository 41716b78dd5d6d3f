"""Local files as text, and every way they can be wrong."""

import errno
import json
import os
import re
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bam_lab.data.sources import local
from bam_lab.data.sources.pieces import LONGEST, Piece, Tally
from bam_lab.errors import InputError
from bam_lab.spec.sources import FilesSource


def source(folder, pattern="**/*", text_field="text", encoding=None):
    return FilesSource(
        kind="files", name="mine", folder=str(folder), pattern=pattern, text_field=text_field,
        encoding=encoding, licence="CC0-1.0", max_megabytes=1.0,
    )  # fmt: skip


def read(source):
    tally = Tally()
    pieces = local.opened(source).pieces
    return [d for piece in pieces for d in local.documents(source, piece, tally)], tally


def test_reads_every_kind(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("one")
    (tmp_path / "b.MD").write_text("two")
    (tmp_path / "b.py").write_text("code")
    (tmp_path / "c.jsonl").write_text('{"body": "three"}\n\n{"body": "four"}\n')
    pq.write_table(pa.table({"body": ["five", "six"]}), tmp_path / "d.parquet")
    found, tally = read(source(tmp_path, text_field="body"))
    assert found == [
        ("b.MD", "two"),
        ("b.py", "code"),
        ("c.jsonl#1", "three"),
        ("c.jsonl#3", "four"),
        ("d.parquet#1", "five"),
        ("d.parquet#2", "six"),
        ("sub/a.txt", "one"),
    ]
    assert tally == Tally(entries=7)


def test_small_files_share_a_piece_and_keep_their_order(tmp_path, monkeypatch):
    for number in range(25):
        (tmp_path / f"{number:02}.txt").write_text(f"text {number}")
    rows = [json.dumps({"text": f"row {number}"}) + "\n" for number in range(100)]
    (tmp_path / "10.jsonl").write_text("".join(rows))
    whole = read(source(tmp_path))[0]
    assert len(local.opened(source(tmp_path)).pieces) == 1
    monkeypatch.setattr(local, "_FILES_A_PIECE", 4)
    monkeypatch.setattr(local.lines.cut, "__defaults__", (500,))
    pieces = local.opened(source(tmp_path)).pieces
    assert [1 + len(piece.more) for piece in pieces][:3] == [4, 4, 2]
    assert sum(piece.path.endswith("jsonl") for piece in pieces) > 2
    assert read(source(tmp_path))[0] == whole
    monkeypatch.setattr(local, "PIECE_BYTES", 7)
    assert read(source(tmp_path))[0] == whole


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG\r\n\0\0\xff", "a.txt: must be text, got binary data"),
        (b"x\0y", "a.txt: must be text, got binary data .it holds NUL"),
        (b"\xff\xfea", "a.txt: must be utf-16 text, got"),
        (b"x" * (LONGEST + 1), "a.txt: must have at most 16 MB, got 16 MB; cut it into documents"),
    ],
)
def test_a_file_that_is_no_text_is_counted(tmp_path, content, message):
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / "b.txt").write_text("text")
    found, tally = read(source(tmp_path))
    assert found == [("b.txt", "text")]
    assert (tally.entries, tally.broken) == (2, 1)
    assert re.match(message, tally.examples[0])


def test_an_empty_file_is_an_empty_document(tmp_path):
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "a.jsonl").write_text("")
    assert read(source(tmp_path)) == ([("__init__.py", "")], Tally(entries=1))


def test_encodings_detected_and_named(tmp_path):
    text = "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë.\r\n"
    (tmp_path / "a.txt").write_bytes(text.encode("cp1252"))
    (tmp_path / "b.txt").write_bytes(text.encode("utf-16"))
    found, tally = read(source(tmp_path))
    assert found == [("a.txt", text), ("b.txt", text)]
    assert tally.notes == ["a.txt: no UTF-8, read as cp1252 by its looks"]
    assert read(source(tmp_path, "a.txt", encoding="cp1252")) == ([("a.txt", text)], Tally(1))


def test_other_kinds_and_hidden_files_are_left_out_and_told(tmp_path):
    (tmp_path / ".venv" / "lib").mkdir(parents=True)
    (tmp_path / ".venv" / "lib" / "a.py").write_text("hidden")
    (tmp_path / ".b.txt").write_text("hidden")
    (tmp_path / "c.txt").write_text("seen")
    (tmp_path / "e.txt").mkdir()
    for name in ("a.png", "b.png", "LICENSE"):
        (tmp_path / name).write_text("other")
    assert [name for name, _ in read(source(tmp_path))[0]] == ["c.txt"]
    assert local.opened(source(tmp_path)).notes == (
        "left out files of other kinds: 2 .png, 1 without ending",
    )
    with pytest.raises(InputError, match=r"must match files that end in .txt, .* got .png by"):
        local.opened(source(tmp_path, "*.png"))


def test_refuses_a_missing_folder_and_an_empty_pattern(tmp_path):
    with pytest.raises(InputError, match=r"folder must exist and be readable, got .*nowhere .No"):
        local.opened(source(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"must match a file of .*, got '\*.txt'"):
        local.opened(source(tmp_path, "*.txt"))
    (tmp_path / "a.md").write_text("text")
    with pytest.raises(InputError, match=r"must be a folder, got the file .*a.md"):
        local.opened(source(tmp_path / "a.md"))


@pytest.mark.parametrize("pattern", ["", "/etc/*", "../*", "sub/../../*", "a\0b"])
def test_a_pattern_that_leaves_the_folder_matches_nothing(tmp_path, pattern):
    (tmp_path / "a.txt").write_text("outside")
    (tmp_path / "mine" / "sub").mkdir(parents=True)
    with pytest.raises(InputError, match="must match a file of"):
        local.opened(source(tmp_path / "mine", pattern))


def test_a_file_that_goes_while_its_folder_is_read_is_left_out(tmp_path, monkeypatch):
    def going(folder, pattern):
        return [*found(folder, pattern), folder / "gone.txt"]

    found = local.Path.glob
    monkeypatch.setattr(local.Path, "glob", going)
    (tmp_path / "a.txt").write_text("text")
    assert local._found(source(tmp_path))[0] == [tmp_path / "a.txt"]

    def gone(folder, pattern):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "sub")

    monkeypatch.setattr(local.Path, "glob", gone)
    with pytest.raises(InputError, match="sub: must be readable"):
        local._found(source(tmp_path))


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="there it is a pattern")
def test_what_is_no_pattern_is_said(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(InputError, match=r"pattern must be one that Python's glob takes, got 'a\*"):
        local.opened(source(tmp_path, "a**b"))


@pytest.mark.parametrize("pattern", ["**/*", "*/*.txt", "*.txt"])
def test_a_link_that_leaves_the_folder_is_refused(tmp_path, pattern):
    mine, outside = tmp_path / "mine", tmp_path / "outside"
    mine.mkdir()
    outside.mkdir()
    (mine / "b.txt").write_text("inside")
    (outside / "a.txt").write_text("outside")
    (mine / ("sub" if pattern == "*/*.txt" else "a.txt")).symlink_to(
        outside if pattern == "*/*.txt" else outside / "a.txt"
    )
    with pytest.raises(InputError, match=r"files must lie in .*mine, got .*a.txt, a link to"):
        local.opened(source(mine, pattern))


def test_links_that_lead_nowhere_or_round_are_counted(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "up").symlink_to("..")
    (tmp_path / "sub" / "a.txt").write_text("text")
    (tmp_path / "link.txt").symlink_to("sub/a.txt")
    (tmp_path / "lost.txt").symlink_to("nowhere")
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    found, tally = read(source(tmp_path))
    assert found == [("link.txt", "text"), ("sub/a.txt", "text")]
    assert tally.entries == 4
    assert tally.examples == [
        "loop.txt: must be readable, got: Too many levels of symbolic links",
        "lost.txt: must be readable, got: No such file or directory",
    ]
    assert len(local.digest(source(tmp_path))) == 64


def test_a_pipe_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "a.txt")
    (tmp_path / "b.txt").write_text("text")
    assert read(source(tmp_path))[0] == [("b.txt", "text")]


def test_refused_files_and_folders(tmp_path, monkeypatch):
    """As a user meets them; root may read everything."""
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "b.jsonl").write_text('{"text": "x"}')

    def refuse(path, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.open", refuse)
    tally = read(source(tmp_path, "*.txt"))[1]
    assert tally.examples == ["a.txt: must be readable, got: Permission denied"]
    with pytest.raises(InputError, match=r"b.jsonl: must be readable, got: Permission denied"):
        read(source(tmp_path, "*.jsonl"))
    assert len(local.digest(source(tmp_path))) == 64
    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(InputError, match=r"must exist and be readable, got .*Permission denied"):
        read(source(tmp_path))


def test_a_file_that_vanishes_stops_the_reading(tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("text")
    pieces = local.opened(source(tmp_path)).pieces
    (tmp_path / "b.txt").unlink()
    with pytest.raises(InputError, match=r"b.txt: must stay while it is read, got: it is gone"):
        [list(local.documents(source(tmp_path), piece, Tally())) for piece in pieces]


def test_odd_names(tmp_path):
    names = [b"a b.txt", b"new\nline.txt", "é.txt".encode(), b"\xff.txt", b"\xff.jsonl", b"#1.txt"]
    for name in names:
        content = b'{"text": "x"}' if name.endswith(b"jsonl") else b"x"
        with open(os.fsencode(tmp_path) + b"/" + name, "wb") as file:
            file.write(content)
    found = [name for name, _ in read(source(tmp_path))[0]]
    assert sorted(found) == sorted(
        ["#1.txt", "a b.txt", "new\nline.txt", "é.txt", "\\udcff.txt", "\\udcff.jsonl#1"]
    )
    assert all(name.encode() for name in found)
    assert len(local.digest(source(tmp_path))) == 64


def test_only_line_feeds_end_a_line_of_jsonl(tmp_path):
    text = "one\u2028two\x85three"
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}, ensure_ascii=False) + "\r\n")
    assert read(source(tmp_path))[0] == [("a.jsonl#1", text)]


def test_whole_pieces_are_read_without_a_stop(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    piece = Piece(str(tmp_path / "a.txt"))
    assert list(local.documents(source(tmp_path), piece, Tally())) == [("a.txt", "text")]


def test_settings_that_no_file_can_use_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    with pytest.raises(InputError, match=r"mine: text_field must have an effect, got 'body'"):
        read(source(tmp_path, text_field="body"))
    pq.write_table(pa.table({"text": ["two"]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match="mine: encoding must have an effect, got 'latin-1'"):
        read(source(tmp_path, "*.parquet", encoding="latin-1"))
    (tmp_path / "c.jsonl").write_text('{"body": "three"}\n')
    assert read(source(tmp_path, "*.[jt]*", text_field="body", encoding="latin-1"))[0]
