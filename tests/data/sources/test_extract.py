"""Each extractor, on a member made by hand."""

import json
import sqlite3
from typing import get_args

import pytest

from bam_lab.data.sources import extract
from bam_lab.spec.corpus import Extractor


def database(*statements):
    connection = sqlite3.connect(":memory:")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    content = connection.serialize()
    connection.close()
    return content


EU = database(
    "create table articles (id integer, celex text, article_id text, content text)",
    "insert into articles values (1, '32024R1', 'art_1', 'Scope` 1. This applies.')",
)
BIBLE = database(
    "create table Bible (BookID, ChapterID, VerseID, Index_, Passage1, Passage2)",
    "insert into Bible values (1, 1, 2, '1:2', '1:2 Second.', '')",
    "insert into Bible values (1, 1, 1, '1:1', '1:1 First.', 'More.')",
)
MODULE = b'''"""Module."""
def f():
    r"""Return f.

    TESTS::

        junk
    """
class C:
    """A class."""
    def m(self):
        """Do m."""
'''
FACTS = {"Geography": {"Area": {"text": "short"}, "Climate": {"text": "<b>Mild</b>. " + "x" * 150}}}

CASES = {
    "cookbook": (
        json.dumps({"Cookbook:Tea": {"ingredients": ["water"], "steps": ['Boil.<ref name="a"/>']}}),
        {"m#Cookbook:Tea": "Tea\n\nwater\n\nBoil."},
    ),
    "docstrings": (MODULE, {"m": "Module.", "m#f": "Return f.", "m#C": "A class.\n\nDo m."}),
    "eu_articles": (EU, {"m#32024R1.art_1": "Scope\n\n1. This applies."}),
    "factbook": (json.dumps(FACTS), {"m#Geography": "Mild. " + "x" * 150}),
    "gutenberg": (b"\xef\xbb\xbfOne.\r\n\r\nTwo.\x1a", {"m#0": "One.\n\nTwo."}),
    "kjv": (BIBLE, {"m#1.1": "First.\nMore.\nSecond."}),
    "python_files": (b"x = a\n", {"m": "x = a\n"}),
    "scancode": (b"---\nkey: mit\n---\n\nYou {{may}}.\n", {"m": "\nYou may.\n"}),
    "wikipedia_intros": (
        json.dumps({"Hope": {"extract": "A mind."}}),
        {"m#Hope": "Hope\n\nA mind."},
    ),
}


def run(extractor, content, name="m"):
    content = content.encode() if isinstance(content, str) else content
    return dict(extract.documents(extractor, [(name, content)]))


@pytest.mark.parametrize("extractor", get_args(Extractor))
def test_extracts(extractor):
    content, documents = CASES[extractor]
    assert run(extractor, content) == documents


@pytest.mark.parametrize(
    "front", ["is_deprecated: yes", "language: fr", "is_false_positive: yes", "a: b\nlanguage: es"]
)
def test_scancode_leaves_out(front):
    assert run("scancode", f"---\n{front}\n---\ntext") == {}


def test_scancode_takes_english():
    assert run("scancode", "---\nlanguage: en\n---\ntext") == {"m": "text"}


def test_a_book_is_cut_between_paragraphs():
    paragraphs = [f"{n} " + "word " * 300 for n in range(20)]
    pieces = run("gutenberg", "\n\n".join(paragraphs))
    assert len(pieces) == 5
    assert "\n\n".join(pieces.values()) == "\n\n".join(paragraphs)


def test_latin_1_is_read():
    assert run("gutenberg", b"caf\xe9") == {"m#0": "caf\u00e9"}


@pytest.mark.parametrize("name", ["a/tests/b.py", "a/test_b.py", "tests/b.py", "a/_vendor/b.py"])
@pytest.mark.parametrize("extractor", ["python_files", "docstrings"])
def test_tests_and_vendored_code_are_left_out(extractor, name):
    assert run(extractor, b'"""Doc."""\n', name) == {}


def test_data_in_python_is_left_out():
    assert run("python_files", b"x = [1, 22, 333, 4444]\n") == {}


def test_what_cannot_be_parsed_has_no_docstrings():
    assert run("docstrings", b"def f(:\n") == {}
    assert run("docstrings", b'"""Doc."""\nx = "\\d"\n') == {"m": "Doc."}
