"""General prose: encyclopaedias, dictionaries, books, recipes."""

import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from bam_lab.data.sources import archives
from bam_lab.data.sources.extract.text import (
    PIECE_CHARACTERS,
    Documents,
    Members,
    decode,
    load,
    pieces,
    plain,
    rows,
)
from bam_lab.errors import InputError


def wikipedia_intros(members: Members) -> Documents:
    """Yield the introductions of Wikipedia articles from a JSON mapping of titles."""
    for name, content in members:
        for title, entry in sorted(load(name, content).items()):
            yield f"{name}#{title}", f"{title}\n\n{entry['extract']}"


def cookbook(members: Members) -> Documents:
    """Yield recipes from a JSON mapping of titles, wiki markup removed."""
    for name, content in members:
        for title, entry in sorted(load(name, content).items()):
            blocks = [
                title.removeprefix("Cookbook:"),
                "\n".join(entry["ingredients"]),
                "\n".join(entry["steps"]),
            ]
            yield f"{name}#{title}", re.sub(r"<ref[^>]*/>|<ref.*?</ref>", "", "\n\n".join(blocks))


def factbook(members: Members) -> Documents:
    """Yield each country's entries that are prose, section by section, HTML removed."""
    for name, content in members:
        for section, entries in load(name, content).items():
            texts = [plain(text) for text in _texts(entries)]
            prose = [text for text in texts if len(text) > 150 and ". " in text]
            yield f"{name}#{section}", "\n\n".join(prose)


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "text" and isinstance(value, str):
                yield value
            else:
                yield from _texts(value)


def kjv(members: Members) -> Documents:
    """Yield the chapters of the King James Bible from a SQLite file, verse numbers removed."""
    query = (
        "select BookID, ChapterID, Passage1, Passage2 from Bible "
        "order by BookID, ChapterID, VerseID, Index_"
    )
    for name, content in members:
        chapters: dict[tuple[int, int], list[str]] = {}
        for book, chapter, first, second in rows(name, content, query):
            verses = [re.sub(r"\d+:\d+ ", "", text) for text in (first, second) if text]
            chapters.setdefault((book, chapter), []).extend(verses)
        for (book, chapter), verses in chapters.items():
            yield f"{name}#{book}.{chapter}", "\n".join(verses)


def gutenberg(members: Members) -> Documents:
    """Yield plain-text books, speeches or letters, long ones in pieces.

    Project Gutenberg's own words before and after a book are cut off, where its marks stand.
    """
    for name, content in members:
        text = decode(content).replace("\x1a", "")
        start = re.search(r"^\*\*\* ?START OF (THE|THIS) PROJECT.*\n", text, flags=re.M)
        end = re.search(r"^\*\*\* ?END OF (THE|THIS) PROJECT", text, flags=re.M)
        body = text[start.end() if start else 0 : end.start() if end else len(text)]
        yield from pieces(name, body)


def dictionary(members: Members) -> Documents:
    """Yield the entries of dictd dictionaries (.dict or gzipped .dict.dz), several a document.

    Entries stand one after the other, each head word at the start of a line; the index beside the
    file, which would give them one by one, is not needed for text to train on.
    """
    for name, content in members:
        packed = name.endswith(".dz")
        text = decode(archives.gunzip(name, content) if packed else content)
        # Entries begin in the first column; what belongs to them is indented or empty.
        entries = re.split(r"\n(?=\S)", text)
        number, piece, size = 0, list[str](), 0
        for entry in entries:
            if entry.startswith("00-database"):
                continue
            piece.append(entry.rstrip())
            size += len(entry)
            if size >= PIECE_CHARACTERS:
                yield f"{name}#{number}", "\n".join(piece)
                number, piece, size = number + 1, [], 0
        if piece:
            yield f"{name}#{number}", "\n".join(piece)


def wordnet(members: Members) -> Documents:
    """Yield WordNet's entries (`data.*` files), as words and gloss, several a document."""
    for name, content in members:
        entries = []
        for line in decode(content).splitlines():
            head, bar, gloss = line.partition(" | ")
            fields = head.split(" ")
            if not bar or line.startswith("  "):  # the licence stands at the top
                continue
            words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
            entries.append(", ".join(words).replace("_", " ") + ": " + gloss.strip())
        yield from pieces(name, "\n\n".join(entries))


def r_texts(members: Members) -> Documents:
    """Yield books that an R package holds as vectors of lines in its lazy-load file (`*.rdb`).

    Such a file is a row of blocks, each a length and a zlib stream of R's XDR serialisation, of
    which only plain vectors of at least 1,000 strings are read.
    """
    for name, content in members:
        rest, number = content, 0
        while len(rest) > 4:
            stream = zlib.decompressobj()
            try:
                lines = _r_strings(stream.decompress(rest[4:], archives.MEMBER_BYTES))
            except (zlib.error, struct.error) as error:
                raise InputError(f"{name} must be R's lazy-load data, got {error}.") from None
            rest = stream.unused_data
            if len(lines) >= 1000:
                yield from pieces(f"{name}#{number}", "\n".join(lines))
                number += 1


def _r_strings(block: bytes) -> list[str]:
    """Return the strings of a serialised vector of strings; none for anything else."""
    _, version = struct.unpack_from(">2si", block)
    place = 14
    if version == 3:  # the name of the encoding stands here
        place += 4 + struct.unpack_from(">i", block, place)[0]
    flags, count = struct.unpack_from(">ii", block, place)
    place += 8
    lines: list[str] = []
    if flags & 0xFF != 16:
        return lines
    for _ in range(count):
        _, size = struct.unpack_from(">ii", block, place)
        place += 8
        lines.append(decode(block[place : place + max(size, 0)]))
        place += max(size, 0)
    return lines
