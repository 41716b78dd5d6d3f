"""Text with facts to remember: each is told and asked once, none is the probe's."""

import re
from itertools import islice
from random import Random

import pytest
from pydantic import ValidationError

from bam_lab.data.recall import GROUPS, KEYS, VALUES, distinct, group_of, held_out
from bam_lab.data.sources.recall import documents
from bam_lab.spec.recall import RecallSource

KINDS = ("words", "numbers", "uuids")


def source(**changes):
    values = {
        "kind": "recall", "name": "recall", "documents": 200, "rng_seed": 1, "licence": "",
        "max_megabytes": 1.0,
    }  # fmt: skip
    return RecallSource.model_validate({**values, **changes})


def facts_of(text):
    return re.findall(r"The code of (\S+) is (\S+)\.", text)


@pytest.mark.parametrize("values", KINDS)
@pytest.mark.parametrize("keys", KINDS)
def test_every_fact_is_told_and_asked_once(keys, values):
    for _, text in documents(source(keys=keys, values=values, documents=40)):
        facts = facts_of(text)
        told, asked = facts[: len(facts) // 2], facts[len(facts) // 2 :]
        assert sorted(told) == sorted(asked) and 1 <= len(told) <= 6
        assert len({key for key, _ in told}) == len({value for _, value in told}) == len(told)
        assert not any(held_out(keys, key, values, value) for key, value in told)


def test_what_is_asked_stands_in_another_order():
    orders = [facts_of(text) for _, text in documents(source())]
    halves = [(own[: len(own) // 2], own[len(own) // 2 :]) for own in orders if len(own) > 6]
    same = sum(told == asked for told, asked in halves)
    assert len(halves) > 50 and same < len(halves) / 4


def test_documents_hold_as_much_as_is_asked_for():
    texts = [text for _, text in documents(source(facts=64, sentences=0))]
    assert max(len(facts_of(text)) for text in texts) == 128
    assert all("wagon" not in text for text in texts)
    with pytest.raises(ValidationError, match="less than or equal to 64"):
        source(facts=65)


def test_same_seed_same_text():
    first = list(documents(source()))
    assert first == list(documents(source()))
    assert first[:50] == list(documents(source(documents=50)))
    assert first != list(documents(source(rng_seed=2)))
    assert len({name for name, _ in first}) == len({text for _, text in first}) == 200


def test_a_quarter_of_all_pairs_is_the_probes():
    assert len(set(KEYS)) == len(set(VALUES)) == 128 and not set(KEYS) & set(VALUES)
    pairs = [(key, value) for key in KEYS for value in VALUES]
    kept = sum(held_out("words", key, "words", value) for key, value in pairs)
    assert kept == len(pairs) / GROUPS


@pytest.mark.parametrize("role", ["key", "value"])
@pytest.mark.parametrize("kind", KINDS)
def test_groups(kind, role):
    for group in range(GROUPS):
        found = list(islice(distinct(kind, role, Random(0), group), 32))
        assert len(set(found)) == 32 and {group_of(kind, text) for text in found} == {group}
    assert len(set(islice(distinct(kind, role, Random(0)), 128))) == 128
