"""Questions of evals: however a set writes its options and answers, they are read apart."""

import pytest

from bam_lab.errors import InputError
from bam_lab.evaluate.tasks.questions import questions, split_options
from bam_lab.spec.tasks import PackageFile, Questions

SPEC = Questions(
    build="questions",
    file=PackageFile(package="evals", version="1", sha256="0" * 64, member="*"),
    scored="answer",
    answer_characters=40,
    choices=4,
    min_items=1,
)


def row(text, ideal):
    system = {"role": "system", "content": "Answer."}
    return {"input": [system, {"role": "user", "content": text}], "ideal": ideal}


def rows(*given):
    return [(f"set/samples#{i}", row(*one)) for i, one in enumerate(given, 1)]


WRITTEN = [
    ("Who owes?\nA. The hotel.\nB. The guest.\nC. Both at once.\nD. The city.\nAnswer:", "C"),
    ("Who owes? \nA: The hotel. \nB: The guest.\nC: Both at once. \nD: The city.", "C: Both"),
    ("Who owes?\n(A) The hotel.\n(B) The guest.\n(C) Both at once.\n(D) The city.\n",
     ["the correct answer is (C)", "the correct answer is \\textbf{(C)}"]),
    ("\nWho owes?\nA. A.The hotel.\nB. B.The guest.\nC. C.Both at once.\nD. D.The city.\nAnswer: ",
     "C"),
]  # fmt: skip


@pytest.mark.parametrize("written", WRITTEN)
def test_every_way_of_writing(written):
    (item,) = questions(rows(written), SPEC).test
    assert item == {
        "id": "set/samples#1",
        "source": "set/samples",
        "prompt": "Who owes?\nAnswer:",
        "choices": ["The hotel.", "The guest.", "Both at once.", "The city."],
        "answer": 2,
    }


def test_letters_are_scored_where_that_is_asked():
    spec = SPEC.model_copy(update={"scored": "letter", "instruction": "Choose."})
    (item,) = questions(rows(WRITTEN[0]), spec).test
    assert item["choices"] == ["A", "B", "C", "D"]
    assert item["prompt"] == (
        "Choose.\n\nWho owes?\nA. The hotel.\nB. The guest.\nC. Both at once.\nD. The city.\n"
        "Answer:"
    )
    assert item["answer"] == 2


def test_a_question_may_hold_options_of_its_own():
    text = "Given\nA. one\nB. two\nwhich holds?\nA. 1\nB. 2\nC. 3\nD. 4"
    assert split_options(text, 4) == ("Given\nA. one\nB. two\nwhich holds?", ["1", "2", "3", "4"])


def test_a_passage_that_runs_into_its_question_is_cut():
    (item,) = questions(rows(("Passage: It rained.Question: Why?\nA. a\nB. b\nC. c\nD. d", "A")),
                        SPEC).test  # fmt: skip
    assert item["prompt"] == "Passage: It rained.\nQuestion: Why?\nAnswer:"


def test_what_is_left_out_is_counted():
    found = questions(
        rows(
            WRITTEN[0],
            (WRITTEN[0][0].replace("Who ", "Who  "), "C"),
            ("Which?\nA. one\nB. One\nC. two\nD. three", "C"),
            ("Which?\nA.\nB. one\nC. two\nD. three", "C"),
            ("Which?\nA. " + "long " * 9 + "\nB. one\nC. two\nD. three", "C"),
            ("Which?\nA. one\nB. two\nC. three\nD. All of the above", "D"),
            ("Which?\nA. one\nB. two\nC. Both A and B\nD. four", "D"),
        ),
        SPEC,
    )
    assert len(found.test) == 1
    assert found.dropped == {
        "asked before": 1,
        "with answers that are alike": 1,
        "with an empty answer": 1,
        "with a long answer": 1,
        "with answers that speak of others": 2,
    }
    letters = questions(rows(("Which?\nA. one\nB. two\nC. three\nD. All of the above", "D")),
                        SPEC.model_copy(update={"scored": "letter"}))  # fmt: skip
    assert letters.test[0]["answer"] == 3


@pytest.mark.parametrize(
    "wrong",
    [
        ("Who owes?\nA. one\nB. two\nC. three", "A"),
        ("Who owes?\nA. one\nB. two\nD. three\nC. four", "A"),
        (WRITTEN[0][0], "E"),
        (WRITTEN[0][0], "the hotel"),
        (WRITTEN[0][0], None),
        ("", "A"),
        (None, "A"),
    ],
)
def test_another_file_is_refused_with_its_line(wrong):
    with pytest.raises(InputError, match="set/samples#2 must be a question with 4 answers"):
        questions(rows(WRITTEN[0], wrong), SPEC)
    with pytest.raises(InputError, match="set/samples#1 must be a question"):
        questions([("set/samples#1", {"text": "no chat"})], SPEC)
