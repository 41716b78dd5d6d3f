"""Turn what a package ships into documents: pure functions from members to (name, text).

A document is one licence, article, file, docstring, chapter, recipe: whatever its source treats as
one piece. Nothing here depends on the Python version that runs it, except that modules which this
Python cannot parse give no docstrings.
"""

import ast
import html
import json
import re
import sqlite3
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, assert_never

from bam_lab.spec.corpus import Extractor

Members = Iterable[tuple[str, bytes]]
Documents = Iterator[tuple[str, str]]

_BOOK_CHARACTERS = 6000
_TESTS = re.compile(r"(^|/)(tests?|testing|benchmarks|_?vendor|typeshed)/|/test_")


def documents(extractor: Extractor, members: Members) -> Documents:
    """Yield (name, text) of every document, with the extractor that the spec names."""
    match extractor:
        case "cookbook":
            return cookbook(members)
        case "docstrings":
            return docstrings(members)
        case "eu_articles":
            return eu_articles(members)
        case "factbook":
            return factbook(members)
        case "gutenberg":
            return gutenberg(members)
        case "kjv":
            return kjv(members)
        case "python_files":
            return python_files(members)
        case "scancode":
            return scancode(members)
        case "wikipedia_intros":
            return wikipedia_intros(members)
        case _:
            assert_never(extractor)


_UNWANTED = re.compile(
    r"^(is_deprecated|is_false_positive): *(yes|true)|^language:(?! *en\b)", re.M
)


def scancode(members: Members) -> Documents:
    """Yield licence texts and notices: the body below the YAML front matter, English only."""
    for name, content in members:
        text = content.decode("utf-8", errors="replace")
        _, front, body = text.split("---\n", 2) if text.count("---\n") > 1 else ("", "", text)
        if not _UNWANTED.search(front):
            # `{{ }}` marks the words that the scanner requires.
            yield name, body.replace("{{", "").replace("}}", "")


def eu_articles(members: Members) -> Documents:
    """Yield articles of EU regulations from the table `articles` of a SQLite file."""
    for name, content in members:
        for celex, article, text in _rows(
            content, "select celex, article_id, content from articles order by celex, id"
        ):
            yield f"{name}#{celex}.{article}", str(text).replace("` ", "\n\n", 1)


def docstrings(members: Members) -> Documents:
    """Yield the docstrings of each top-level class or function, with those of its methods.

    Sections of mere tests (Sage's `TESTS::`) are cut off.
    """
    for name, content in members:
        if _TESTS.search(name):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes in old string literals
                module = ast.parse(content)
        except (SyntaxError, ValueError):
            continue
        yield name, _docstring(module)
        for node in module.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                blocks = [_docstring(inner) for inner in ast.walk(node)]
                yield f"{name}#{node.name}", "\n\n".join(filter(None, blocks))


def _docstring(node: ast.AST) -> str:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return ""
    text = re.split(r"^TESTS?::? *$", ast.get_docstring(node) or "", maxsplit=1, flags=re.M)[0]
    return text.strip()


def python_files(members: Members) -> Documents:
    """Yield Python files whole, without tests, vendored copies and tables of data."""
    for name, content in members:
        if _TESTS.search(name):
            continue
        text = content.decode("utf-8", errors="replace")
        digits = sum(text.count(digit) for digit in "0123456789")
        if digits < 0.1 * len(text):
            yield name, text


def wikipedia_intros(members: Members) -> Documents:
    """Yield the introductions of Wikipedia articles from a JSON mapping of titles."""
    for name, content in members:
        for title, entry in sorted(json.loads(content).items()):
            yield f"{name}#{title}", f"{title}\n\n{entry['extract']}"


def cookbook(members: Members) -> Documents:
    """Yield recipes from a JSON mapping of titles, wiki markup removed."""
    for name, content in members:
        for title, entry in sorted(json.loads(content).items()):
            blocks = [
                title.removeprefix("Cookbook:"),
                "\n".join(entry["ingredients"]),
                "\n".join(entry["steps"]),
            ]
            yield f"{name}#{title}", re.sub(r"<ref[^>]*/>|<ref.*?</ref>", "", "\n\n".join(blocks))


def factbook(members: Members) -> Documents:
    """Yield each country's entries that are prose, section by section, HTML removed."""
    for name, content in members:
        for section, entries in json.loads(content).items():
            texts = [_plain(text) for text in _texts(entries)]
            prose = [text for text in texts if len(text) > 150 and ". " in text]
            yield f"{name}#{section}", "\n\n".join(prose)


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "text" and isinstance(value, str):
                yield value
            else:
                yield from _texts(value)


def _plain(text: str) -> str:
    text = re.sub(r"<br ?/?>|</p>", "\n", text)
    text = html.unescape(re.sub(r"<[^>]+>", "", text)).replace("\xa0", " ")
    return re.sub(r"\n\s*", "\n", text).strip()


def kjv(members: Members) -> Documents:
    """Yield the chapters of the King James Bible from a SQLite file, verse numbers removed."""
    query = (
        "select BookID, ChapterID, Passage1, Passage2 from Bible "
        "order by BookID, ChapterID, VerseID, Index_"
    )
    for name, content in members:
        chapters: dict[tuple[int, int], list[str]] = {}
        for book, chapter, first, second in _rows(content, query):
            verses = [re.sub(r"\d+:\d+ ", "", text) for text in (first, second) if text]
            chapters.setdefault((book, chapter), []).extend(verses)
        for (book, chapter), verses in chapters.items():
            yield f"{name}#{book}.{chapter}", "\n".join(verses)


def gutenberg(members: Members) -> Documents:
    """Yield plain-text books in pieces of about 6,000 characters, cut between paragraphs."""
    for name, content in members:
        text = _decode(content).replace("\r\n", "\n").replace("\x1a", "")
        blocks = re.split(r"\n\s*\n", text)
        piece: list[str] = []
        number = 0
        for block in blocks:
            piece.append(block.strip("\n"))
            if sum(map(len, piece)) >= _BOOK_CHARACTERS:
                yield f"{name}#{number}", "\n\n".join(piece)
                piece, number = [], number + 1
        if piece:
            yield f"{name}#{number}", "\n\n".join(piece)


def _decode(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _rows(database: bytes, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(database)
        return connection.execute(query).fetchall()
    finally:
        connection.close()
