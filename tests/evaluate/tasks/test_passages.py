"""Documents of held-out text: what follows is true, what is wrong is of the same source."""

import random
import re

import pytest

from bam_lab.evaluate.tasks.documents import alike
from bam_lab.evaluate.tasks.passages import continuation, last_word, next_line
from bam_lab.spec.tasks import Continuation, LastWord, NextLine

CONTINUATION = Continuation(
    build="continuation",
    domain="law",
    unit="words",
    prompt_characters=80,
    answer_characters=40,
    choices=4,
    items=1000,
    min_items=1,
    items_per_document=3,
    rng_seed=1,
)
WORDS = ["the", "court", "held", "that", "party", "broke", "its", "contract", "owed", "damages"]


def prose(seed, words=120):
    rng = random.Random(seed)
    drawn = [*rng.choices(WORDS, k=words - 1), f"end{seed}"]
    return " ".join(word + rng.choice(["", "", "", "."]) for word in drawn)


def code(seed, lines=40):
    rng = random.Random(seed)
    return "\n".join(
        "    " * rng.randint(0, 3) + f"{rng.choice(WORDS)}_{seed} = {rng.choice(WORDS)}({i})"
        for i in range(lines)
    )


def texts(make=prose, count=12, sources=("a", "b")):
    return [
        {"id": f"{sources[i % len(sources)]}/{i}", "source": sources[i % len(sources)],
         "text": make(i)}
        for i in range(count)
    ]  # fmt: skip


def whole(item, given):
    return next(text["text"] for text in given if item["id"].rpartition("#")[0] == text["id"])


@pytest.mark.parametrize(("unit", "make", "joint"), [("words", prose, " "), ("lines", code, "\n")])
def test_the_right_passage_goes_on_and_no_other_does(unit, make, joint):
    given = texts(make)
    spec = CONTINUATION.model_copy(update={"unit": unit})
    built = continuation(given, spec)
    assert len(built.test) > 20
    for item in built.test:
        text = whole(item, given)
        right = item["choices"][item["answer"]]
        assert item["prompt"] + joint + right in text
        for number, wrong in enumerate(item["choices"]):
            assert 20 <= len(wrong) <= 40
            assert wrong == wrong.rstrip()
            if number != item["answer"]:
                assert not alike(wrong, right)
                assert wrong not in text
                same = [t for t in given if wrong in t["text"]]
                assert {t["source"] for t in same} == {item["source"]}
        assert 40 <= len(item["prompt"]) <= 80


def test_passages_begin_and_end_between_words_or_lines():
    given = texts()
    for item in continuation(given, CONTINUATION).test:
        text, right = whole(item, given), item["choices"][item["answer"]]
        at = text.index(item["prompt"] + " " + right)
        assert at == 0 or text[at - 1].isspace()
        assert text[at + len(item["prompt"] + right) + 1].isspace()
    given = texts(code)
    for item in continuation(given, CONTINUATION.model_copy(update={"unit": "lines"})).test:
        lines = whole(item, given).split("\n")
        assert all(line in lines for line in item["prompt"].split("\n"))
        assert all(line in lines for line in item["choices"][item["answer"]].split("\n"))


def test_the_same_documents_from_the_same_text_in_any_order():
    given = texts()
    built = continuation(given, CONTINUATION)
    again = continuation(given[::-1], CONTINUATION)
    assert built == again
    assert built.digest == again.digest
    other = continuation(given, CONTINUATION.model_copy(update={"rng_seed": 2}))
    assert other.digest != built.digest


def test_another_text_changes_no_place_of_the_others():
    few, more = texts(count=10), texts(count=12)
    prompts = {item["id"]: item["prompt"] for item in continuation(more, CONTINUATION).test}
    for item in continuation(few, CONTINUATION).test:
        assert prompts[item["id"]] == item["prompt"]


def test_every_text_is_asked_once_before_any_is_asked_twice():
    given = texts()
    first = continuation(given, CONTINUATION.model_copy(update={"items": len(given)}))
    assert len({item["id"].rpartition("#")[0] for item in first.test}) == len(given)
    assert len({item["id"] for item in continuation(given, CONTINUATION).test}) > len(given)


def test_answers_stand_at_every_place():
    built = continuation(texts(count=60), CONTINUATION)
    places = [item["answer"] for item in built.test]
    assert all(0.15 < places.count(place) / len(places) < 0.35 for place in range(4))


def test_short_texts_and_lonely_sources_are_left_out_and_counted():
    given = [*texts(), {"id": "c/1", "source": "c", "text": prose(99)}]
    given.append({"id": "a/short", "source": "a", "text": "Too short to ask anything."})
    built = continuation(given, CONTINUATION)
    assert {item["source"] for item in built.test} == {"a", "b"}
    assert built.dropped["without a fitting place"] == 1
    assert built.dropped["with too few others of their source for wrong answers"] == 3


def test_texts_that_all_say_the_same_give_no_question():
    given = [{"id": f"a/{i}", "source": "a", "text": prose(1)[: 200 + i]} for i in range(2)]
    assert continuation(given * 3, CONTINUATION).test == ()


def test_the_last_word_has_stood_before_and_ends_a_sentence():
    spec = LastWord(
        build="last_word",
        domain="law",
        prompt_characters=120,
        word_characters=4,
        items=100,
        min_items=1,
        items_per_document=4,
        rng_seed=1,
    )
    given = texts(count=20)
    built = last_word(given, spec)
    assert len(built.test) > 20
    for item in built.test:
        word = item["target"].removeprefix(" ")
        assert item["target"] != word
        assert len(word) >= 4
        assert word.isalpha()
        assert re.search(rf"\b{word}\b", item["prompt"])
        text = whole(item, given)
        after = text[text.index(f"{item['prompt']} {word}") + len(f"{item['prompt']} {word}") :]
        assert after[0] == "."
        assert 60 <= len(item["prompt"]) <= 120


def test_the_next_line_is_whole_and_keeps_its_indentation():
    spec = NextLine(
        build="next_line",
        domain="code",
        prompt_characters=120,
        answer_characters=(10, 24),
        items=100,
        min_items=1,
        items_per_document=5,
        rng_seed=1,
    )
    given = texts(code)
    built = next_line(given, spec)
    assert len(built.test) > 20
    assert any(item["target"].startswith("\n    ") for item in built.test)
    for item in built.test:
        assert item["target"][0] == "\n"
        assert 10 <= len(item["target"].strip()) <= 24
        lines = whole(item, given).split("\n")
        assert lines[lines.index(item["prompt"].split("\n")[-1]) + 1] == item["target"][1:]
    assert len(next_line(given, spec.model_copy(update={"items": 7})).test) == 7
