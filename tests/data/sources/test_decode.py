"""Bytes to text: marks, names, detection, and what is no text."""

import sys

import pytest

from bam_lab.data.sources.decode import NotText, decode
from bam_lab.errors import InputError

FRENCH = "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë. " * 5


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "cp1252", "shift_jis"]
)
def test_a_named_encoding_is_taken(encoding):
    text = "日本語の文章" if encoding == "shift_jis" else FRENCH
    assert decode(text.encode(encoding), encoding) == (text, None)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_utf_8_and_byte_order_marks_need_no_name(encoding):
    assert decode(FRENCH.encode(encoding), None) == (FRENCH, None)


def test_other_encodings_are_detected_and_told():
    text, detected = decode(("plain " * 100_000 + FRENCH).encode("cp1252"), None)
    assert text.endswith(FRENCH)
    assert detected == "cp1252"


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xfe\xfd", None, "binary data"),
        (b"text\0text", None, "binary data .it holds NUL"),
        (bytes(range(1, 9)) * 20, None, "full of control characters"),
        ("déçu".encode("latin-1"), "utf-8", "must be utf-8 text, got"),
        (b"\xff\xfea", None, "must be utf-16 text, got"),
        (b"odd", "utf-16", "must be utf-16 text, got"),
    ],
)
def test_no_text(content, encoding, message):
    with pytest.raises(NotText, match=message):
        decode(content, encoding)


def test_detection_names_the_package_that_it_lacks(monkeypatch):
    monkeypatch.setitem(sys.modules, "charset_normalizer", None)
    with pytest.raises(InputError, match=r"Name it by .* pip install 'bam-lab\[data\]'"):
        decode("déçu".encode("latin-1"), None)
