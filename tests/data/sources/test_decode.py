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


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", FRENCH),
        ("cp1252", "déjà vu à côté " * 30),
        ("cp1252", "The café was déjà vu - no, naïve."),
        ("cp1252", "“Quoted” — it’s fine…"),
        ("cp1252", "Gutenberg text: Molière and Hôtel, façade, æther."),
        ("cp1250", "Zażółć gęślą jaźń, źdźbło trawy i łąka.\n" * 3),
        ("cp1251", "Съешь же ещё этих мягких французских булок. " * 3),
        ("koi8_r", "Съешь же ещё этих мягких французских булок. " * 3),
        ("cp1253", "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.\n" * 3),
        ("cp932", "日本語の文章をここに書きます。とても長い文章です。\n" * 5),
        ("gb18030", "这是一个中文句子，用来测试编码检测。\n" * 5),
    ],
)
@pytest.mark.parametrize("before", ["", "plain text, line by line\n" * 20_000])
def test_other_encodings_are_detected_and_told(encoding, text, before):
    assert decode((before + text).encode(encoding), None) == (before + text, encoding)


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
