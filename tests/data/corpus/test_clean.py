"""Cleaning: what stays, what goes."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bam_lab.data.corpus import clean
from bam_lab.data.corpus.domain import ranks


def test_normalise_composes_and_tidies():
    assert clean.normalise("e\u0301  \r\nb\t\r\rc\n\n\n\n\n\nd \n") == "\u00e9\nb\n\nc\n\n\nd"


def test_control_characters_go_and_form_feeds_stay():
    assert clean.normalise("a\0b\x1b[1m\x07c\x1a\n\x0cd\te\x7f") == "ab[1mc\n\x0cd\te"
    assert clean.normalise("e\x02\u0301 \x0b\n") == "\u00e9"
    every = set(map(chr, range(32))) | {"\x7f"}
    assert {c for c in every if clean.has_controls(f"x{c}y")} == every - set("\t\n\r\x0c")
    assert not clean.has_controls(clean.normalise("".join(every)))


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
    ],
)
def test_keep(corpus_spec, text, kept):
    assert clean.keep(text, corpus_spec.cleaning) is kept


def plain(texts, settings):
    """Return texts without the long paragraphs that were met often enough, one after the other."""
    seen, results = Counter(), []
    for text in texts:
        kept = []
        for part in text.split("\n\n"):
            if len(part) >= settings.paragraph_characters:
                seen[part.strip()] += 1
                if seen[part.strip()] > settings.paragraph_repeats:
                    continue
            kept.append(part)
        results.append("\n\n".join(kept).strip())
    return results


def streamed(texts, settings):
    keys = [key for text in texts for key in clean.paragraph_keys(text, settings)]
    late = iter(ranks(np.array(keys, np.uint64)) >= settings.paragraph_repeats)
    return [clean.without_repeats(text, late, settings) for text in texts]


def test_a_long_paragraph_stays_at_most_twice(corpus_spec):
    long, short = "x" * 80, "y" * 79
    text = f"{long}\n\n{short}"
    assert streamed([text] * 4, corpus_spec.cleaning) == [text, text, short, short]


paragraphs = st.lists(st.sampled_from(["a" * 80, "b" * 90, "c" * 5, " " + "a" * 80]), max_size=4)


@given(st.lists(paragraphs.map("\n\n".join), max_size=6))
def test_paragraphs_stay_as_if_texts_came_one_after_the_other(corpus_spec, texts):
    texts = [clean.normalise(text) for text in texts]
    assert streamed(texts, corpus_spec.cleaning) == plain(texts, corpus_spec.cleaning)
