"""Clean documents: pure functions on text."""

import hashlib
import re
import unicodedata
from collections import Counter

from bam_lab.spec.corpus import Cleaning


def normalise(text: str) -> str:
    """Return NFC text with Unix line ends, no trailing spaces, at most two blank lines together."""
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n"))
    text = re.sub(r"[\t ]+$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{4,}", "\n\n\n", text).strip()


def keep(text: str, settings: Cleaning) -> bool:
    """Say whether a normalised text is of a fit length and script."""
    if not settings.min_characters <= len(text) <= settings.max_characters:
        return False
    ascii_characters = len(text.encode("ascii", errors="ignore"))
    return "\0" not in text and ascii_characters >= settings.min_ascii_share * len(text)


def without_repeats(text: str, seen: Counter[bytes], settings: Cleaning) -> str:
    """Return the text without the long paragraphs that `seen` has met often enough; count them."""
    kept = []
    for paragraph in text.split("\n\n"):
        if len(paragraph) >= settings.paragraph_characters:
            key = hashlib.blake2b(paragraph.strip().encode(), digest_size=8).digest()
            seen[key] += 1
            if seen[key] > settings.paragraph_repeats:
                continue
        kept.append(paragraph)
    return "\n\n".join(kept).strip()
