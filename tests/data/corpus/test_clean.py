"""Cleaning: what stays, what goes."""

from collections import Counter

import pytest

from bam_lab.data.corpus import clean


def test_normalise_composes_and_tidies():
    assert clean.normalise("e\u0301  \r\nb\t\r\rc\n\n\n\n\n\nd \n") == "\u00e9\nb\n\nc\n\n\nd"


def test_normalise_twice_is_once(corpus_dir):
    for path in corpus_dir.glob("*.jsonl"):
        text = path.read_text()
        assert clean.normalise(clean.normalise(text)) == clean.normalise(text)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a" * 100, True),
        ("a" * 99, False),
        ("a" * 10000, True),
        ("a" * 10001, False),
        ("a" * 91 + "\u4e2d" * 9, True),
        ("a" * 89 + "\u4e2d" * 11, False),
        ("a" * 200 + "\0", False),
    ],
)
def test_keep(corpus_spec, text, kept):
    assert clean.keep(text, corpus_spec.cleaning) is kept


def test_a_long_paragraph_stays_at_most_twice(corpus_spec):
    seen = Counter()
    long, short = "x" * 80, "y" * 79
    text = f"{long}\n\n{short}"
    results = [clean.without_repeats(text, seen, corpus_spec.cleaning) for _ in range(4)]
    assert results == [text, text, short, short]
