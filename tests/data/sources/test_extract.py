"""Each extractor, on a member made by hand."""

import gzip
import json
import sqlite3
import struct
import zlib
from typing import get_args

import pytest

from bam_lab.data.sources import extract
from bam_lab.errors import InputError
from bam_lab.spec.sources import Extractor


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

PAGE = """<html><head><title>No</title><style>p {}</style></head><body>
<nav>Home</nav><div class="sphinxsidebar"><div>Side</div> bar</div>
<h1>Groups\u00b6</h1><p>A <b>group</b>
is &lt;a set&gt;.</p><pre>x  =  1
y = 2</pre>Next: Rings, Up: Top
</body></html>"""
METAMATH = b"""$( Axiom of
   _Simp_. $)
ax-1 $a |- ( ph ->
  ps ) $.
$( Its use. $)
mp2 $p |- ch $= ( a b ) c d $.
"""
SERVICE = {
    "metadata": {"serviceFullName": "Queue"},
    "documentation": "<p>Keeps <b>letters</b>.</p>",
    "operations": {"Send": {"documentation": "<p>Sends.</p>"}, "Bare": {}},
    "shapes": {
        "Letter": {"members": {"to": {"documentation": "Who."}, "by": {}}},
        "Name": {"type": "string"},
    },
}
WORDNET = (
    b"  1 This software and database | is provided\n"
    b'00001740 03 n 02 real_entity 0 thing 1 001 ~ 00001930 n 0000 | what is; "it exists"\n'
)
DICTIONARY = b"00-database-info\n   About.\nabbot\n   A head of monks.\nabbess\n   One of nuns.\n"
TORT = {"sample": [{"content": "Is it a tort?", "name": "example_user"}, {"content": "B"}]}
COURT = {
    "input": [{"content": "Say yes or no."}, {"content": "He ran."}, {"content": "Theft"}],
    "ideal": "No",
}
SUM = {"input": [{"content": "What is 1+1?"}], "ideal": ["2", "two"]}
ITEMS = [
    {"id": "g1", "prompt": "How many?", "expected": "3", "upstream_answer": "1+2 #### 3"},
    {"id": "h1", "ctx": "They", "endings": ["sing.", "fall."], "expected_index": 1},
    {"id": "t1", "question": "Is it?", "choices": ["Yes", "No"], "expected_index": 0},
]
WEB = [
    {"type": kind, "text": f"Of {kind}."} for kind in ("c4", "openwebtext", "oscar", "wikipedia")
]


def lines(*items):
    return "\n".join(map(json.dumps, items)) + "\n"


def r_block(*strings):
    """Serialise a vector of strings as R's lazy-load files hold it."""
    data = b"X\n" + struct.pack(">iiiii", 2, 0, 0, 16, len(strings))
    for string in strings:
        data += struct.pack(">ii", 9, len(string)) + string.encode()
    return struct.pack(">I", len(data)) + zlib.compress(data)


CASES = {
    "api_manuals": (
        gzip.compress(json.dumps(SERVICE).encode()),
        {
            "m": "Queue\n\nKeeps letters.",
            "m#operations.Send": "Send\n\nSends.",
            "m#shapes.Letter": "Letter\n\nto: Who.",
        },
    ),
    "chat_items": (
        lines(TORT, COURT, SUM),
        {
            "m#1": "Is it a tort?\nB",
            "m#2": "He ran.\nTheft\nNo",
            "m#3": "What is 1+1?\n2\ntwo",
        },
    ),
    "choice_items": (
        lines(*ITEMS),
        {"g1": "How many?\n1+2 #### 3", "h1": "They fall.", "t1": "Is it?\nYes\nNo"},
    ),
    "cookbook": (
        json.dumps({"Cookbook:Tea": {"ingredients": ["water"], "steps": ['Boil.<ref name="a"/>']}}),
        {"m#Cookbook:Tea": "Tea\n\nwater\n\nBoil."},
    ),
    "dictionary": (DICTIONARY, {"m#0": "abbot\n   A head of monks.\nabbess\n   One of nuns."}),
    "docstrings": (MODULE, {"m": "Module.", "m#f": "Return f.", "m#C": "A class.\n\nDo m."}),
    "eu_articles": (EU, {"m#32024R1.art_1": "Scope\n\n1. This applies."}),
    "factbook": (json.dumps(FACTS), {"m#Geography": "Mild. " + "x" * 150}),
    "gutenberg": (b"\xef\xbb\xbfOne.\r\n\r\nTwo.\x1a", {"m#0": "One.\n\nTwo."}),
    "html_pages": (PAGE, {"m#0": "Groups\n\nA group is <a set>.\n\nx  =  1\ny = 2"}),
    "human_eval": (
        gzip.compress(lines({"task_id": "H/0", "prompt": "p", "canonical_solution": "s"}).encode()),
        {"H/0": "ps"},
    ),
    "kjv": (BIBLE, {"m#1.1": "First.\nMore.\nSecond."}),
    "metamath": (
        METAMATH,
        {"m#0": "Axiom of\n_Simp_.\nax-1: |- ( ph -> ps )\n\nIts use.\nmp2: |- ch"},
    ),
    "proof_scripts": (b"let A = prove(1);;\n\n", {"m#0": "let A = prove(1);;\n\n"}),
    "python_files": (b"x = a\n", {"m": "x = a\n"}),
    "r_texts": (
        r_block("short") + r_block(*["line"] * 1000),
        {"m#0#0": "\n".join(["line"] * 1000)},
    ),
    "scancode": (b"---\nkey: mit\n---\n\nYou {{may}}.\n", {"m": "\nYou may.\n"}),
    "source_files": (b"var x = a;\n", {"m": "var x = a;\n"}),
    "spdx_licences": (json.dumps({"MIT": {"licenseText": "Do."}}), {"m#MIT": "Do."}),
    "web_c4": (lines(*WEB), {"m#1": "Of c4."}),
    "web_openwebtext": (lines(*WEB), {"m#2": "Of openwebtext."}),
    "web_oscar": (lines(*WEB), {"m#3": "Of oscar."}),
    "web_wikipedia": (lines(*WEB), {"m#4": "Of wikipedia."}),
    "wikipedia_intros": (
        json.dumps({"Hope": {"extract": "A mind."}}),
        {"m#Hope": "Hope\n\nA mind."},
    ),
    "wordnet": (WORDNET, {"m#0": 'real entity, thing: what is; "it exists"'}),
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


def test_minified_programs_are_left_out():
    assert run("source_files", b"x;" * 600) == {}
    assert run("python_files", b"x;" * 600) != {}


def test_what_gutenberg_says_about_itself_is_cut_off():
    book = "Header\n*** START OF THE PROJECT GUTENBERG EBOOK X ***\nText.\n*** END OF THE PROJECT G"
    assert run("gutenberg", book) == {"m#0": "Text."}


def test_long_pages_and_dictionaries_come_in_pieces():
    page = "".join(f"<p>{n} {'word ' * 300}</p>" for n in range(20))
    assert len(run("html_pages", page)) == 5
    entries = "".join(f"word{n}\n   {'text ' * 200}\n" for n in range(20))
    assert len(run("dictionary", entries)) == 4
    packed = dict(extract.documents("dictionary", [("m.dict.dz", gzip.compress(entries.encode()))]))
    assert list(packed.values()) == list(run("dictionary", entries).values())


@pytest.mark.parametrize("name", ["a/genindex-all.html", "a/search.html", "a/chapInd.html"])
def test_indices_are_left_out(name):
    assert run("html_pages", PAGE, name) == {}


@pytest.mark.parametrize(
    ("extractor", "content", "message"),
    [
        ("cookbook", b"{", "m must be JSON"),
        ("web_c4", b'{"type": "c4", "text": "a"}\n{', "m:2 must be JSON"),
        ("chat_items", b'{"other": 1}', "m:1 must hold `sample`"),
        ("eu_articles", b"not a database", "m must be the database"),
        ("human_eval", b"not gzip", "m must be whole gzip data"),
        ("human_eval", gzip.compress(b"x" * 9999)[:-20], "m must be whole gzip data"),
        ("cookbook", b"[1]", "extractor cookbook must fit what the members hold"),
        ("wikipedia_intros", b'{"Hope": {}}', "extractor wikipedia_intros must fit .*KeyError"),
        ("wordnet", b"a b | c", "extractor wordnet must fit"),
        ("r_texts", b"12345678", "m must be R's lazy-load data"),
    ],
)
def test_another_version_of_a_package_is_told(extractor, content, message):
    with pytest.raises(InputError, match=message):
        run(extractor, content)
