"""Turn the bytes of one text file into text: named encoding, byte order mark, UTF-8, detection."""

import codecs
import re

from bam_lab.errors import InputError

_MARKS = {  # UTF-32's mark begins with UTF-16's
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_CONTROL = re.compile(r"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f\x80-\x84\x86-\x9f]")
_MOST_CONTROL = 0.02
_WESTERN = "cp1252"
_LIKELY = (
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "koi8_r"),
    *("cp932", "euc_jp", "gb18030", "big5", "cp949"),
)
"""What text is in that is not UTF-8; among more encodings, rare ones are found by chance."""
_SAMPLE = 20_000
_BEFORE = 200


class NotText(ValueError):
    """Say why bytes are no text; for a tally."""


def marked(head: bytes) -> str | None:
    """Return the encoding that a byte order mark in the first four bytes names."""
    return next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)


def decode(content: bytes, encoding: str | None) -> tuple[str, str | None]:
    """Return the text, and the encoding if nothing but detection said which.

    Raises:
        NotText: it is binary, or not in the named encoding.
        InputError: detection needs a package that is missing.
    """
    detected = None
    try:
        text = content.decode(encoding or marked(content[:4]) or "utf-8")
    except UnicodeError as error:
        if encoding is not None or marked(content[:4]) is not None:
            raise NotText(f"must be {encoding or marked(content[:4])} text, got {error}") from None
        detected = _detected(content)
        try:
            text = content.decode(detected)
        except UnicodeError as mistaken:
            raise NotText(f"must be text, got bytes that seem {detected}: {mistaken}") from None
    if "\0" in text:
        raise NotText("must be text, got binary data (it holds NUL)")
    if len(_CONTROL.findall(text)) > _MOST_CONTROL * len(text):
        raise NotText("must be text, got binary data (it is full of control characters)")
    return text, detected


def _detected(content: bytes) -> str:
    """Guess the encoding of bytes that are not UTF-8."""
    if b"\0" in content:
        raise NotText("must be text, got binary data (it holds NUL)")
    try:
        import charset_normalizer  # in the extra `data`
    except ModuleNotFoundError:
        raise InputError(
            "telling the encoding of a file that is not UTF-8 needs charset-normalizer. "
            "Name it by the source's encoding, or run: pip install 'bam-lab[data]'"
        ) from None
    found = charset_normalizer.from_bytes(_telling(content), cp_isolation=list(_LIKELY))
    best = found.best()
    # It rejects text with many accents, and of what seems as good it takes the first by name.
    if best is None or any(
        _WESTERN in match.could_be_from_charset
        for match in found
        if (match.chaos, match.coherence) == (best.chaos, best.coherence)
    ):
        return _WESTERN
    return str(best.encoding)


def _telling(content: bytes) -> bytes:
    """Return lines that are not ASCII: among much that is, they would count for nothing."""
    found = bytearray()
    for line in content.split(b"\n"):
        if not line.isascii():
            first = next(i for i, byte in enumerate(line) if byte >= 0x80)
            found += line[max(0, first - _BEFORE) :][:_SAMPLE] + b"\n"
        if len(found) >= _SAMPLE:
            break
    return bytes(found)
