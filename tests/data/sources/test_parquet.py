"""Parquet: rows by groups, columns that are not there, damaged files, bombs."""

import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bam_lab.data.sources import parquet
from bam_lab.data.sources.pieces import LONGEST, Tally
from bam_lab.errors import InputError


def write(path, columns, **settings):
    pq.write_table(pa.table(columns), path, **settings)
    return path


def read(path, field="text", size=1 << 20):
    tally = Tally()
    pieces = parquet.cut(path, field, size)
    return [d for p in pieces for d in parquet.documents(p, path.name, field, tally)], tally


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
@pytest.mark.parametrize("size", [1, 300, 1 << 20])
def test_row_groups_give_every_row_once(tmp_path, kind, size):
    texts = [f"text {i}" for i in range(1000)]
    nested = [{"a": 1, "b": "x"}] * 1000
    columns = {"meta": nested, "text": pa.array(texts).cast(kind)}
    path = write(tmp_path / "a.parquet", columns, row_group_size=70)
    pieces = parquet.cut(path, "text", size)
    assert (len(pieces) > 1) == (size < 1000)
    assert read(path, size=size)[0] == [(f"a.parquet#{i + 1}", t) for i, t in enumerate(texts)]


def test_rows_without_text_are_counted(tmp_path):
    path = write(tmp_path / "a.parquet", {"text": ["one", None, "", "x" * (LONGEST + 1), "two"]})
    found, tally = read(path)
    assert found == [("a.parquet#1", "one"), ("a.parquet#3", ""), ("a.parquet#5", "two")]
    assert (tally.entries, tally.broken) == (5, 2)
    assert tally.examples[0] == "a.parquet:2: 'text' must hold text, got nothing"
    assert "at most 16 MB" in tally.examples[1]
    bytes_ = write(tmp_path / "b.parquet", {"text": [b"\xff", b"ok"]})
    assert read(bytes_)[1].examples == ["b.parquet:1: 'text' must hold UTF-8 text"]


def test_a_file_without_rows(tmp_path):
    path = write(tmp_path / "a.parquet", {"text": pa.array([], pa.string())})
    assert read(path) == ([], Tally())


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"body": ["x"], "id": [1]}, "must have a column 'text', has 'body', 'id'. Mend the"),
        ({"text": [1]}, "column 'text' must hold strings, got int64"),
        ({"text": [["x"]]}, "column 'text' must hold strings, got list"),
        ({"text": [{"body": "x"}]}, "column 'text' must hold strings, got struct"),
    ],
)
def test_refuses_columns(tmp_path, columns, message):
    path = write(tmp_path / "a.parquet", columns)
    with pytest.raises(InputError, match=f"a.parquet: {message}"):
        read(path)


def test_refuses_damaged_files(tmp_path):
    path = write(tmp_path / "a.parquet", {"text": ["some text"] * 1000})
    content = path.read_bytes()
    for wrong in (b"", b"PAR1", b"plain text", content[:-20], content[: len(content) // 2]):
        path.write_bytes(wrong)
        with pytest.raises(InputError, match="must be a whole and sound parquet file, got"):
            read(path)
    path.write_bytes(b"PAR1" + b"\xff" * 60 + content[64:])
    with pytest.raises(InputError, match="must be a whole and sound parquet file, got"):
        read(path)
    path.unlink()
    with pytest.raises(InputError, match="No such file"):
        read(path)


def test_refuses_a_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "ANY_RATIO_BYTES", 100_000)
    texts = ["x" * 1000 + str(i) for i in range(5000)]
    path = write(tmp_path / "a.parquet", {"text": texts}, compression="zstd", use_dictionary=False)
    with pytest.raises(InputError, match="must unpack to at most 200 times its size, got 5 MB in"):
        read(path)


def test_a_repeated_string_is_one_in_memory(tmp_path):
    path = write(tmp_path / "a.parquet", {"text": ["x" * 1_000_000] * 200})
    before = pa.total_allocated_bytes()
    tally, most, count = Tally(), 0, 0
    for piece in parquet.cut(path, "text"):
        for _ in parquet.documents(piece, "a", "text", tally):
            count += 1
            most = max(most, pa.total_allocated_bytes() - before)
    assert count == 200
    assert most < 20_000_000


def test_names_the_package_that_it_lacks(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet", {"text": ["x"]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"needs pyarrow. Run: pip install 'bam-lab\[data\]'"):
        read(path)
