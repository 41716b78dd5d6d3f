"""JSON lines: cut and whole give the same, packed or not, and every way a line can be wrong."""

import gzip
import json
import re
import tracemalloc

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bam_lab.data.sources import lines, unpack
from bam_lab.data.sources.pieces import LONGEST, Piece, Tally
from bam_lab.errors import InputError


def read(path, encoding=None, size=1 << 20, field="text"):
    tally = Tally()
    pieces = lines.cut(path, encoding, size)
    found = [d for p in pieces for d in lines.documents(p, path.name, field, encoding, tally)]
    return found, tally


def plain(content):
    """Read all at once: the oracle."""
    rows = [(i, row) for i, row in enumerate(content.split(b"\n"), 1) if row.strip()]
    return [(f"a.jsonl#{i}", json.loads(row)["text"]) for i, row in rows]


def zstandard(content):
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as file:
        file.write(content)
    return sink.getvalue().to_pybytes()


@given(
    texts=st.lists(st.text(max_size=30) | st.none(), max_size=12),
    size=st.integers(1, 80),
    chunk=st.integers(1, 50),
    last=st.booleans(),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_pieces_give_the_same_as_the_whole(tmp_path_factory, texts, size, chunk, last, end):
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    rows = ["" if t is None else json.dumps({"text": t}, ensure_ascii=False) for t in texts]
    try:
        content = (end.join(rows) + (end if last else "")).encode()
    except UnicodeEncodeError:
        return
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_CHUNK", chunk)
        pieces = lines.cut(path, None, size)
    assert [p.start for p in pieces[1:]] == [p.stop for p in pieces[:-1]]
    assert all(p.stop - p.start >= size for p in pieces[:-1])
    assert all(content.rfind(b"\n", p.start, p.stop - 1) + 1 - p.start < size for p in pieces)
    found, tally = read(path, size=size)
    assert found == plain(content)
    assert (tally.entries, tally.broken) == (len(found), 0)


def test_packed_files_give_the_same(tmp_path):
    content = b"".join(json.dumps({"text": f"text {i}"}).encode() + b"\n" for i in range(1000))
    (tmp_path / "a.jsonl").write_bytes(content)
    (tmp_path / "a.jsonl.gz").write_bytes(
        gzip.compress(content[:500]) + gzip.compress(content[500:])
    )
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard(content[:500]) + zstandard(content[500:]))
    wanted = [text for _, text in read(tmp_path / "a.jsonl")[0]]
    assert len(wanted) == 1000
    for ending in (".gz", ".zst"):
        assert [text for _, text in read(tmp_path / f"a.jsonl{ending}")[0]] == wanted


@pytest.mark.parametrize(
    ("encoding", "named"),
    [
        ("utf-8-sig", None),
        ("utf-16", None),
        ("utf-32", None),
        ("latin-1", "latin-1"),
        ("utf-16-le", "utf-16-le"),
    ],
)
def test_other_encodings(tmp_path, encoding, named):
    path = tmp_path / "a.jsonl"
    rows = [json.dumps({"text": f"déjà {i}"}, ensure_ascii=False) for i in range(500)]
    path.write_bytes("\n".join(rows).encode(encoding))
    found, tally = read(path, named, size=100)
    assert found == [(f"a.jsonl#{i + 1}", f"déjà {i}") for i in range(500)]
    assert tally.broken == 0


BROKEN = [
    (b"nonsense", r"must be a JSON object, got 'nonsense' \(Expecting value\)"),
    (b'{"text": "cut', r"must be a JSON object, got .* .Invalid control"),
    (b'["text"]', r"must be a JSON object, got '\[\"text\"\]'"),
    (b"12", "must be a JSON object, got '12'"),
    (b"1" * 5000, "must be a JSON object, got '1111"),
    (b"[" * 100_000, "nested too deeply"),
    (b'{"txt": "y", "id": 1}', "must have the field 'text', has 'txt', 'id'"),
    (b"{}", "must have the field 'text', has none"),
    (b'{"text": 3}', "'text' must hold text, got int"),
    (b'{"text": null}', "'text' must hold text, got NoneType"),
    (b'{"text": "half: \\ud83d"}', "half of a surrogate pair"),
    ('{"text": "é"}'.encode("latin-1"), "must be UTF-8, or what the source's encoding names"),
    (b"\0\0\0", "must be a JSON object, got"),
]


@pytest.mark.parametrize(("line", "message"), BROKEN)
def test_a_broken_line_is_counted_with_its_number(tmp_path, line, message):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "one"}\n\n' + line + b'\n{"text": "two"}\n')
    found, tally = read(path)
    assert found == [("a.jsonl#1", "one"), ("a.jsonl#4", "two")]
    assert (tally.entries, tally.broken) == (3, 1)
    assert re.match(f"a.jsonl:3: .*{message}", tally.examples[0])


def test_numbers_go_on_over_pieces(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "x"}\n' * 100 + b"nonsense\n" + b'{"text": "x"}\n' * 50)
    assert len(lines.cut(path, None, 64)) > 20
    assert read(path, size=64)[1].examples[0].startswith("a.jsonl:101: ")


def test_a_dot_leads_into_an_object(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"meta": {"body": "x"}}\n{"meta.body": "y"}\n{"meta": 3}\n')
    found, tally = read(path, field="meta.body")
    assert [text for _, text in found] == ["x", "y"]
    assert "has 'meta'" in tally.examples[0]


def test_one_endless_line_costs_little_memory(tmp_path):
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.write(b'{"text": "one"}\n{"text": "')
        file.seek(200_000_000)  # a hole reads as NUL and takes no room
        file.write(b'"}\n{"text": "two"}\n')
    tracemalloc.start()
    try:
        found, tally = read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == [("a.jsonl#1", "one"), ("a.jsonl#3", "two")]
    assert tally.examples == ["a.jsonl:2: must have at most 16 MB, got 200 MB"]
    assert peak < 3 * LONGEST


def test_the_longest_line_is_read(tmp_path):
    path = tmp_path / "a.jsonl"
    longest = b'{"text": "' + b"x" * (LONGEST - 13) + b'"}\n'
    assert len(longest) == LONGEST
    path.write_bytes(longest + longest.replace(b'"}', b'x"}'))
    found, tally = read(path)
    assert [name for name, _ in found] == ["a.jsonl#1"]
    assert tally.broken == 1


@pytest.mark.parametrize(
    ("pack", "damage"),
    [
        (gzip.compress, "cut short"),
        (gzip.compress, "other content"),
        (gzip.compress, "flipped"),
        (zstandard, "cut short"),
        (zstandard, "other content"),
    ],
)
def test_a_damaged_packed_file(tmp_path, pack, damage):
    content = "".join(json.dumps({"text": f"{i * 7919 % 10007}"}) + "\n" for i in range(20_000))
    packed = bytearray(pack(content.encode()))
    if damage == "cut short":
        packed = packed[: len(packed) // 2]
    elif damage == "other content":
        packed = bytearray(b"plain text\n" * 10)
    else:
        packed[len(packed) // 2] ^= 255
    path = tmp_path / ("a.jsonl.gz" if pack is gzip.compress else "a.jsonl.zst")
    path.write_bytes(packed)
    with pytest.raises(InputError, match=r"a.jsonl.(gz|zst): must be a whole and sound file, got"):
        read(path)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard])
def test_a_bomb_is_stopped(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(unpack, "ANY_RATIO_BYTES", 1_000_000)
    path = tmp_path / ("a.jsonl.gz" if pack is gzip.compress else "a.jsonl.zst")
    path.write_bytes(pack(b'{"text": "x"}\n' * 200_000))
    with pytest.raises(InputError, match=r"must unpack to at most 200 times its size, got more"):
        read(path)
    monkeypatch.setattr(unpack, "ANY_RATIO_BYTES", 100_000_000)
    assert len(read(path)[0]) == 200_000


def test_a_file_that_vanished(tmp_path):
    piece = Piece(str(tmp_path / "a.jsonl"))
    with pytest.raises(InputError, match=r"a.jsonl: must be a whole .* No such file"):
        list(lines.documents(piece, "a.jsonl", "text", None, Tally()))
