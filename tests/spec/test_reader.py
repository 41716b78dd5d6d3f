"""What the reader refuses, and the one clear message for each."""

from pathlib import Path

import pytest

from bam_lab.errors import SpecError
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.reader import read

GOOD = """schema: 1
vocab_size: 512
dim: 32
num_layers: 2
num_heads: 2
num_kv_heads: 2
head_dim: 16
ffn_dim: 64
max_seq_len: 32
block: parallel
tie_embeddings: false
"""


def problems(tmp_path: Path, text: str | bytes) -> list[str]:
    path = tmp_path / "model.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SpecError) as error:
        read(path, ModelSpec)
    assert "Traceback" not in str(error.value)
    return [line.replace(f"{path}", "FILE") for line in error.value.problems]


def test_a_good_file_reads(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(GOOD + "norm_eps: 1e-3\n")
    assert read(path, ModelSpec).norm_eps == 0.001


def test_all_problems_at_once_with_line_column_and_nearest_key(tmp_path: Path) -> None:
    text = GOOD.replace("dim: 32", "dim: wide", 1).replace("ffn_dim: 64", "fnn_dim: 64")
    found = problems(tmp_path, text.replace("num_heads: 2", "num_heads: -2", 1))
    assert found == [
        "FILE:3:1: dim must be an integer, got 'wide'.",
        "FILE:5:1: num_heads must be > 0, got -2.",
        "FILE:1:1: ffn_dim must be given. Add it.",
        "FILE:8:1: fnn_dim must be a known key. Did you mean `ffn_dim`?",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "FILE: the file must not be empty"),
        ("# only a comment\n", "FILE: the file must hold a mapping, got nothing"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "FILE: the file must be UTF-8 text, got binary data"),
        ("- a\n- b\n", "FILE:1:1: the file must hold a mapping, got a list"),
        ("just words\n", "FILE:1:1: the file must hold a mapping, got a single value"),
        ("dim: [1, 2\n", "the file must be valid YAML"),
        (GOOD + "dim: 64\n", "FILE:12:1: dim must stand once, got a duplicate key"),
        (GOOD.replace("dim: 32", "dim: !!python/name:os.system", 1), "dim must not carry a tag"),
        (GOOD.replace("dim: 32", "dim: !secret 3", 1), "dim must not carry a tag"),
        (GOOD.replace("dim: 32", "dim: !!int '32'", 1), "dim must not carry a tag"),
        (GOOD.replace("dim: 32", "dim: !!set {a}", 1), "dim must not carry a tag"),
        (GOOD.replace("schema: 1", "schema: 2"), "schema must be 1, got 2. Written for a newer"),
        (GOOD.replace("schema: 1", "schema: true"), "schema must be 1, got True"),
        (GOOD.replace("parallel", "diagonal"), "block must be 'parallel' or 'serial', got 'diag"),
        (GOOD + "? [a, b]\n: 1\n", "must be a plain key"),
        ("a: " + "[" * 100 + "]" * 100, "must be at most 40 levels deep"),
        ("a: " + "[" * 5000 + "]" * 5000, "FILE: the file must be at most 40 levels deep"),
        (
            GOOD.encode() + b"# a\nname: caf\xe9\n",
            "FILE:13: the file must be UTF-8 text, got the byte 0xe9",
        ),
        (GOOD + "name: a\x07b\n", "FILE:12: the file must be valid YAML, got the character"),
        (GOOD + 'name: "\\UFFFFFFFF"\n', "FILE: the file must be valid YAML, got an escape"),
        (
            GOOD + 'name: "\\ud800"\n',
            "FILE:12:1: name must be plain text, got the character '\\ud800",
        ),
        (
            GOOD + 'name: "\\e[31m"\n',
            "FILE:12:1: name must be plain text, got the character '\\x1b",
        ),
        (GOOD.replace("dim: 32", "dim: 18446744073709551617", 1), "dim must be at most 2^64"),
        (GOOD.replace("dim: 32", f"dim: 0x{'f' * 5000}", 1), "dim must be at most 2^64"),
        (GOOD.replace("schema: 1", "schema: 1.0"), "schema must be 1, got 1.0"),
        ("x" * 1_000_001, "the file must be under 1 MB"),
    ],
)
def test_one_clear_message(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert any(message in line for line in problems(tmp_path, text))


def test_an_alias_bomb_is_refused_at_once(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    assert "must not be an alias" in problems(tmp_path, "\n".join(lines))[0]


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="must be readable, got: no such file"):
        read(tmp_path / "absent.yaml", ModelSpec)
    with pytest.raises(SpecError, match="must be readable, got: is a directory"):
        read(tmp_path, ModelSpec)
