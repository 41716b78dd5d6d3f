"""What makes a score meaningless is refused: answers that are empty or alike, false chance."""

import pytest

from bam_lab.errors import InputError
from bam_lab.evaluate.tasks.documents import Built, chance, checked, majority_share
from bam_lab.spec.task_files import read_task

CHOICES = read_task("tort-law").model_copy(update={"examples": 1})
CLOZE = read_task("general-last-word")


def choice(number, choices=("one", "two", "three", "four"), answer=1, **changes):
    return {
        "id": f"d{number}",
        "source": "s",
        "prompt": f"Question {number}?",
        "choices": list(choices),
        "answer": answer,
    } | changes


def with_one(**changes):
    return Built((choice(1), choice(2, **changes)), (choice(3),))


def test_good_documents_pass_as_they_are():
    built = with_one()
    assert checked(CHOICES, built) is built
    assert chance(built.test) == 0.25
    assert majority_share(built.test) == 1.0
    assert majority_share([{"target": "a"}, {"target": "a"}, {"target": "b"}]) == 2 / 3


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"choices": ["one", "ONE ", "x", "y"]},
            "d2 must have wrong choices that differ from the r",
        ),
        ({"choices": ["x", "one", "x", "y"]}, "d2 must have each choice once, got 'x' again"),
        ({"choices": ["", "one", "x", "y"]}, "d2 must have no empty choice, got one at 0"),
        ({"choices": ["z", " ", "x", "y"]}, "d2 must have no empty choice, got one at 1"),
        ({"answer": 4}, "d2 must have its answer among 4 choices, got number 4"),
        ({"answer": -1}, "d2 must have its answer among 4 choices, got number -1"),
        ({"prompt": "\n"}, "d2 must have text before the answer, got none"),
        ({"prompt": "Question 1?"}, "d2 must ask something of its own, got what d1 asks"),
        ({"prompt": "Question 3?"}, "d3 must ask something of its own, got what d2 asks"),
        ({"id": "d1"}, "d1 must stand once"),
        ({"choices": ["one", "two"]}, "chance must be that of the documents, 0.3750, got 0.25"),
    ],
)
def test_bad_documents_are_refused(changes, told):
    with pytest.raises(InputError, match=told):
        checked(CHOICES, with_one(**changes))


def test_empty_answers_none_and_wrong_examples_are_refused():
    item = {"id": "d1", "source": "s", "prompt": "It is a", "target": " "}
    with pytest.raises(InputError, match="d1 must have an answer, got an empty one"):
        checked(CLOZE, Built((item,)))
    with pytest.raises(InputError, match=r"must be one at least, got none \(left out: 3 short\)"):
        checked(CLOZE, Built((), (), {"short": 3}))
    with pytest.raises(InputError, match=r"must be one at least, got none \(there was no content"):
        checked(CLOZE, Built(()))
    with pytest.raises(InputError, match="examples must be 1, got 0"):
        checked(CHOICES, Built((choice(1),)))


def test_many_problems_are_counted():
    bad = Built(tuple(choice(i, prompt="") for i in range(9)), (choice(9),))
    with pytest.raises(InputError, match="and 12 more problems"):
        checked(CHOICES, bad)


def test_the_digest_is_of_all_documents_and_what_they_are_for():
    built = with_one()
    assert built.digest == with_one().digest
    assert built.digest != with_one(answer=2).digest
    assert built.digest != Built(built.test[:1], (*built.test[1:], *built.examples)).digest
    assert built.digest != Built(built.test[::-1], built.examples).digest
