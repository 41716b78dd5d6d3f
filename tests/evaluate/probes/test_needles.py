"""Needles: exact lengths and depths, known chance, and who finds them."""

import math
import re
from itertools import chain

import pytest
import torch

from bam_lab.data.recall import LONG, SHORT, held_out
from bam_lab.data.sources.recall import documents
from bam_lab.errors import InputError, SpecError
from bam_lab.evaluate.probes.needle_scores import needle_rows, score_needles
from bam_lab.evaluate.probes.needles import ASKED, NOISE, Asked, needle_cells
from bam_lab.evaluate.probes.rows import COLUMNS
from bam_lab.model.generate import generate
from bam_lab.spec.recall import RecallSource
from tests.evaluate.probes.probe_text import Constant, Copier, Words, only, random_text
from tests.model.cases import DENSE, METHODS, SEGMENT, model_of

DEPTHS = (0.0, 0.3, 0.5, 1.0)
SHORT_ONES = ("needle", "needles", "needles-only")
VOCAB = 1200  # of the tests' words, and of haystacks beside them
HAY = [random_text(domain, length=400, seed=i, vocab=VOCAB) for i, domain in enumerate("ab")]
for own in HAY:
    own.tokens[:] = own.tokens % 200 + 1000  # tokens that no fact has


def cells_of(name="needle", lengths=(60,), depths=DEPTHS, count=3, seed=0, encode=None, **changes):
    asked = ASKED[name] if not changes else Asked(name, **changes)
    return needle_cells(encode or Words(), HAY, asked, lengths, depths, count, seed)


def central(n, p, share=0.999):
    """Return the least and the most hits that guessing has but in `1 - share` of all cases."""
    chances = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    low = next(k for k in range(n + 1) if sum(chances[: k + 1]) > (1 - share) / 2)
    high = next(k for k in range(n, -1, -1) if sum(chances[k:]) > (1 - share) / 2)
    return low, high


@pytest.mark.parametrize("size", [99, 3])
@pytest.mark.parametrize("name", ASKED)
def test_lengths_and_depths_are_exact(name, size):
    encode, asked = Words(size), ASKED[name]
    lengths = (55, 56, 90) if asked.form == SHORT else (330, 401)
    if size == 3:
        lengths = tuple(2 * length for length in lengths) if asked.form == SHORT else (380,)
    if asked.keys == "uuids":
        lengths = (500,)
    opening = len(encode(asked.form.opened(asked.values)))
    for cell in cells_of(name, lengths, encode=encode):
        for needle in cell.needles:
            key, value = needle.facts[0]
            own = encode(asked.form.told(key, value, asked.values))
            question = encode(asked.form.asked(key, asked.values))
            assert len(needle.prompt) == cell.length
            assert needle.prompt[needle.place :][: len(own)] == tuple(own)
            room = cell.length - opening - len(question) - len(own)
            assert needle.place == opening + math.floor(cell.depth * room + 0.5)
            assert needle.prompt[cell.length - len(question) :] == tuple(question)
            if cell.depth == 1:
                assert needle.place + len(own) + len(question) == cell.length
            whole = encode(asked.form.asked(key, asked.values) + f" {value}")
            assert needle.prompt[cell.length - len(question) :] + needle.candidates[
                needle.answer
            ] == tuple(whole)


@pytest.mark.parametrize("name", ASKED)
def test_all_facts_stand_once_and_the_rest_is_the_haystack(name):
    encode, asked = Words(), ASKED[name]
    length = 60 if asked.form == SHORT else 400
    for cell in cells_of(name, [length], encode=encode):
        for number, needle in enumerate(cell.needles):
            text = list(needle.prompt)
            question = encode(asked.form.asked(needle.facts[0][0], asked.values))
            opening = encode(asked.form.opened(asked.values))
            text = text[len(opening) : len(text) - len(question)]
            for key, value in needle.facts:
                own = encode(asked.form.told(key, value, asked.values))
                places = [i for i in range(len(text)) if text[i : i + len(own)] == own]
                assert len(places) == 1
                del text[places[0] : places[0] + len(own)]
            hay = HAY[number % 2].tokens[number // 2].tolist()
            if asked.haystack == "noise":
                hay = encode(NOISE) * 40
            assert text == hay[: len(text)]
            others = len(needle.facts) - 1
            if asked.distractors == "fill":
                assert len(text) < 2 * len(own) + 2 and others > 1
            else:
                assert others == asked.distractors and len(text) > 0


@pytest.mark.parametrize("name", ASKED)
def test_candidates(name):
    encode, asked = Words(3), ASKED[name]
    cells = cells_of(name, [150 if asked.form == SHORT else 480], encode=encode, count=20)
    needles = [needle for cell in cells for needle in cell.needles]
    for needle in needles:
        values = [encode(f" {value}") for _, value in needle.facts]
        assert len(set(needle.candidates)) == asked.candidates == len(needle.candidates)
        assert len({len(own) for own in needle.candidates}) == 1
        in_text = [list(own) in values for own in needle.candidates]
        assert list(needle.candidates[needle.answer]) == values[0]
        assert sum(in_text) == (asked.candidates if asked.distractors else 1)
        assert len({key for key, _ in needle.facts}) == len(needle.facts)
        assert len({value for _, value in needle.facts}) == len(needle.facts)
    assert len({needle.answer for needle in needles}) == asked.candidates
    assert len({needle.facts[0] for needle in needles}) > len(needles) / 2


@pytest.mark.parametrize("kind", ["words", "numbers", "uuids"])
def test_no_answer_was_trained(kind):
    """No pair of a key and a candidate stands in training text; its keys and values do."""
    source = RecallSource(
        kind="recall", name="recall", documents=400, values=kind, rng_seed=0, licence="",
        max_megabytes=1.0,
    )  # fmt: skip
    text = "\n".join(text for _, text in documents(source))
    trained = set(re.findall(r"The code of (\S+) is (\S+)\.", text))
    cells = cells_of("many", [400], values=kind, distractors=3, candidates=4, count=30)
    needles = [needle for cell in cells for needle in cell.needles]
    for needle in needles:
        for _, value in needle.facts:
            assert (needle.facts[0][0], value) not in trained
            assert held_out("words", needle.facts[0][0], kind, value)
    keys = {key for key, _ in trained}
    assert len(trained) > 1000 and len(keys) == 128
    assert {needle.facts[0][0] for needle in needles} <= keys
    if kind == "words":
        assert len({value for _, value in trained}) == 128


@pytest.mark.parametrize("size", [99, 3])
@pytest.mark.parametrize("name", SHORT_ONES)
def test_who_copies_finds_all(name, size):
    cells = cells_of(name, [50 if size == 99 else 110], encode=Words(size), count=8)
    rows = needle_rows(Copier(), cells, precision="float32")
    assert {row["value"] for row in rows if row["metric"] in ("accuracy", "generated")} == {1.0}


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("name", ["needles", "needles-only"])
def test_who_tells_no_keys_apart_guesses(name, last):
    """Over all depths; at one of them the last needle is always the right one, or never."""
    cells = cells_of(name, [70], count=40)
    reader = Copier(reach=1, last=last)
    found = score_needles(reader, cells, precision="float32")
    hits = sum(one.likeliest for own in found for one in own)
    assert hits == 40
    if name == "needles":
        assert [sum(one.likeliest for one in own) for own in found] == [0, 0, 0, 40][
            :: 2 * last - 1
        ]
    rows = needle_rows(reader, cells, precision="float32")
    chances = {row["depth"]: row["chance"] for row in rows if row["metric"] == "accuracy"}
    assert chances == {None: 1 / 4} | dict.fromkeys(DEPTHS)


@pytest.mark.parametrize("name", SHORT_ONES)
@pytest.mark.parametrize("model", ["constant", "dense", "lory-uniform"])
def test_a_random_model_is_at_chance(name, model):
    one = Constant() if model == "constant" else system(model)
    cells = cells_of(name, [50], count=75)
    row = only(needle_rows(one, cells, precision="float32"), metric="accuracy", length=None)
    assert row["chance"] == 1 / 4 and row["n"] == 300
    low, high = central(300, 1 / 4)
    assert low <= row["value"] * 300 <= high


def system(name):
    method = DENSE if name == "dense" else METHODS[name]
    return model_of(method, vocab_size=VOCAB)


def test_the_bounds_are_those_of_guessing():
    assert central(4, 0.5) == (0, 4)
    low, high = central(300, 0.25)
    assert 45 < low < 60 and 92 < high < 105


@pytest.mark.parametrize("name", ["dense", "lory-own_mean", "lory-uniform"])
@pytest.mark.parametrize("rule", ["prompt", "segment"])
def test_generated_is_what_is_generated(name, rule):
    """A candidate that greedy decoding gives counts; the answers of a random model are made so."""
    if name == "dense" and rule == "segment":
        return
    model, encode = system(name), Words(3)
    cell = cells_of("needles", [140], count=4, encode=encode)[2]
    needles = []
    for number, needle in enumerate(cell.needles):
        size = len(needle.candidates[0])
        prompts = torch.tensor([needle.prompt])
        made = generate(model, prompts, None, size, rule=rule, end=None).tokens[0].tolist()
        if number % 2:
            made[-1] = (made[-1] + 1) % VOCAB
        candidates = list(needle.candidates)
        candidates[needle.answer] = tuple(made)
        needles.append(needle._replace(candidates=tuple(candidates)))
    cells = [cell._replace(needles=tuple(needles))]
    (found,) = score_needles(model, cells, precision="float32", rule=rule)
    assert [one.generated for one in found] == [True, False, True, False]


def test_of_equals_the_first_is_taken():
    """So that a model that finds all alike guesses, where answers stand at random places."""
    (cell,) = cells_of(depths=[0.5], count=12)
    (found,) = score_needles(Constant(), [cell], precision="float32")
    assert [one.likeliest for one in found] == [needle.answer == 0 for needle in cell.needles]


def test_rows():
    cells = cells_of("needles", (50, 70), DEPTHS, count=2)
    model = system("lory-uniform")
    rows = needle_rows(model, cells, precision="float32")
    assert all(tuple(row) == COLUMNS for row in rows)
    assert len(rows) == 3 * (2 * (len(DEPTHS) + 1) + 1)
    whole = only(rows, metric="accuracy", length=None, depth=None)
    assert (whole["n"], whole["task"], whole["rule"]) == (16, "needles", "prompt")
    assert (whole["segment_len"], whole["trained_segment_len"]) == (SEGMENT, SEGMENT)
    each = [row for row in rows if row["depth"] is not None and row["metric"] == "accuracy"]
    assert whole["value"] == pytest.approx(sum(row["value"] for row in each) / len(each))
    assert only(rows, metric="generated", length=50, depth=0.3)["chance"] is None
    plain = needle_rows(system("dense"), cells, precision="float32")
    assert {row["rule"] for row in plain} == {None}


@pytest.mark.parametrize("name", ["dense", "lory-own_mean", "bam-shared-soft"])
def test_alone_as_in_a_batch(name):
    model, cells = system(name), cells_of("needles", (50, 64), count=2)
    many = score_needles(model, cells, precision="float32")
    alone = score_needles(model, cells, precision="float32", batch_tokens=1)
    for one, other in zip(chain(*many), chain(*alone), strict=True):
        assert one.nats == pytest.approx(other.nats, rel=1e-5) and one[:2] == other[:2]


def test_the_same_questions_each_time():
    """Whatever other lengths and depths are asked, and in which order."""
    every = {(cell.length, cell.depth): cell for cell in cells_of(lengths=(50, 70))}
    encode = Words()
    cells_of(lengths=(50, 70), encode=encode)
    again = {(c.length, c.depth): c for c in cells_of(lengths=(70, 50), encode=encode)}
    part = cells_of(lengths=(70,), depths=(0.5,), encode=encode)
    assert part == [again[70, 0.5]]
    facts = [needle.facts for needle in every[70, 0.5].needles]
    assert facts == [needle.facts for needle in part[0].needles]
    (other,) = cells_of(lengths=(70,), depths=(0.5,), encode=encode, seed=1)
    assert other.needles != part[0].needles


@pytest.mark.parametrize(
    ("name", "length", "message"),
    [
        ("needle", 10, "length must be at least 14 tokens for needle, got 10"),
        (
            "needles",
            25,
            "room for all needles of needles, got 0 tokens before and 11 behind .* 0 and",
        ),
        ("needles-only", 25, "room for all needles of needles-only, got 0 tokens before and 11 "),
        ("needles-only", 590, "needles-only must find enough .* numbers"),
        ("needle", 500, "rows of text must have 486 tokens for this length, got 400"),
    ],
)
def test_prompts_that_cannot_be_made(name, length, message):
    with pytest.raises(InputError, match=message):
        cells_of(name, [length], [0.0])


def test_a_tokenizer_that_joins_question_and_answer():
    def joined(text):
        return [len(text)] if text.endswith("is") else [*map(ord, text)]

    with pytest.raises(InputError, match="the tokenizer must keep the tokens of"):
        cells_of(encode=joined)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"candidates": 1}, "candidates must be at least 2, got 1"),
        ({"distractors": -1}, "distractors must be at least 0"),
        (
            {"distractors": 2},
            "at most one more than distractors, whose values they are, got 4 of 2",
        ),
    ],
)
def test_what_cannot_be_asked(settings, message):
    with pytest.raises(SpecError, match=message):
        Asked("x", **settings)


def test_depths_that_are_none():
    with pytest.raises(SpecError, match=r"depths must be from 0 to 1, got 1.5"):
        cells_of(depths=(0.5, 1.5))


def test_prompts_that_are_too_long():
    cells = cells_of(lengths=(150,))
    with pytest.raises(SpecError, match="max_seq_len 150, got prompts and answers of up to 151"):
        needle_rows(system("dense"), cells, precision="float32")
    needle_rows(system("dense"), cells_of(lengths=(149,), depths=[0.5]), precision="float32")


@pytest.mark.parametrize("name", ["smear", "soft_moe"])
def test_what_sees_the_answer_is_refused(name):
    with pytest.raises(SpecError, match="causal inference rule to score continuations, got s"):
        needle_rows(system(name), cells_of(), precision="float32")


def test_rulers_form_asks_in_its_words():
    assert LONG.question.count("{key}") == 2 and "{value}" not in LONG.question
