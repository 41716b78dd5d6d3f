"""Local files as text, and every way they can be wrong."""

import json

import pytest

from bam_lab.data.sources import local
from bam_lab.errors import InputError
from bam_lab.spec.corpus import FilesSource


def source(folder, pattern="**/*", text_field="text"):
    return FilesSource(
        kind="files", name="mine", folder=str(folder), pattern=pattern, text_field=text_field,
        licence="CC0-1.0", max_megabytes=1.0,
    )  # fmt: skip


def test_reads_every_kind(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("one")
    (tmp_path / "b.md").write_text("two")
    (tmp_path / "c.jsonl").write_text('{"body": "three"}\n\n{"body": "four"}\n')
    assert dict(local.documents(source(tmp_path, text_field="body"))) == {
        "b.md": "two",
        "c.jsonl#1": "three",
        "c.jsonl#3": "four",
        "sub/a.txt": "one",
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "a.txt: must hold text, got an empty file"),
        ("a.txt", b" \n", "a.txt: must hold text, got an empty file"),
        ("a.txt", b"\xff\xfe\x00", "a.txt: must be UTF-8 text"),
        ("a.txt", b"x\0y", "a.txt: must be text, got binary data"),
        ("a.parquet", b"PAR1", "a.parquet: must end in .jsonl, .md, .py, .txt"),
        ("a.jsonl", b'{"text": "x"}\n{"txt": "y"}', "a.jsonl:2: must be a JSON object"),
        ("a.jsonl", b'["text"]', "a.jsonl:1: must be a JSON object"),
        ("a.jsonl", b"nonsense", "a.jsonl:1: must be a JSON object"),
        ("a.jsonl", b'{"text": 3}', "a.jsonl:1: must be a JSON object"),
        ("a.jsonl", b'{"text": "half of a pair: \\ud83d"}', "a.jsonl:1: must be a JSON object"),
        ("a.jsonl", b"[" * 100_000, "a.jsonl:1: must be a JSON object"),
    ],
)
def test_refuses(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(local.documents(source(tmp_path)))


def test_refuses_a_missing_folder_and_an_empty_pattern(tmp_path):
    with pytest.raises(InputError, match=r"folder must exist, got .*nowhere"):
        list(local.documents(source(tmp_path / "nowhere")))
    with pytest.raises(InputError, match=r"must match a file of .*, got '\*.txt'"):
        list(local.documents(source(tmp_path, "*.txt")))


@pytest.mark.parametrize("pattern", ["", "/etc/*", "../*", "sub/../../*"])
def test_a_pattern_that_leaves_the_folder_matches_nothing(tmp_path, pattern):
    (tmp_path / "a.txt").write_text("outside")
    (tmp_path / "mine" / "sub").mkdir(parents=True)
    with pytest.raises(InputError, match="must match a file of"):
        list(local.documents(source(tmp_path / "mine", pattern)))


def test_only_line_feeds_end_a_line_of_jsonl(tmp_path):
    text = "one\u2028two\x85three"
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}, ensure_ascii=False) + "\r\n")
    assert list(local.documents(source(tmp_path))) == [("a.jsonl#1", text)]


def test_digest_sees_names_and_contents(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one")
    first = local.digest(source(tmp_path))
    assert local.digest(source(tmp_path)) == first
    path.write_text("two")
    second = local.digest(source(tmp_path))
    path.rename(tmp_path / "b.txt")
    assert len({first, second, local.digest(source(tmp_path))}) == 3
