"""What several extractors share: types, decoding, tables of SQLite, and cutting long texts."""

import html
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

from bam_lab.errors import InputError

Members = Iterable[tuple[str, bytes]]
Documents = Iterator[tuple[str, str]]

PIECE_CHARACTERS = 6000


def decode(content: bytes) -> str:
    """Return text that is UTF-8 or, where it is not, Latin-1, with Unix line ends."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return text.replace("\r\n", "\n")


def pieces(name: str, text: str) -> Documents:
    """Yield a long text in pieces of about `PIECE_CHARACTERS`, cut between paragraphs."""
    piece: list[str] = []
    size = number = 0
    for block in re.split(r"\n\s*\n", text):
        piece.append(block.strip("\n"))
        size += len(piece[-1])
        if size >= PIECE_CHARACTERS:
            yield f"{name}#{number}", "\n\n".join(piece)
            piece, size, number = [], 0, number + 1
    if piece:
        yield f"{name}#{number}", "\n\n".join(piece)


def plain(text: str) -> str:
    """Return the text of a fragment of HTML."""
    text = re.sub(r"<br ?/?>|</p>", "\n", text)
    text = html.unescape(re.sub(r"<[^>]+>", "", text)).replace("\xa0", " ")
    return re.sub(r"\n\s*", "\n", text).strip()


def load(name: str, content: bytes | str) -> Any:
    """Return the JSON value that a member or line of one holds.

    Raises:
        InputError: it is not JSON.
    """
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} must be JSON, got {error}. Is it another version?") from None


def json_lines(name: str, content: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (line number from 1, value) of JSON lines; empty lines are passed over."""
    for number, line in enumerate(decode(content).split("\n"), start=1):
        if line.strip():
            yield number, load(f"{name}:{number}", line)


def rows(name: str, database: bytes, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query on a SQLite file.

    Raises:
        InputError: it is not a database, or has no such table.
    """
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(database)
        return connection.execute(query).fetchall()
    except sqlite3.Error as error:
        raise InputError(
            f"{name} must be the database that its extractor knows, got {error}. "
            "Is it another version?"
        ) from None
    finally:
        connection.close()
