"""Generated questions: answers of the same generator, and none that a corpus holds."""

import pytest

from bam_lab.errors import InputError
from bam_lab.evaluate.tasks.exercises import exercises, question_of
from bam_lab.spec.tasks import Exercises, TrainedExercises

SPEC = Exercises(
    build="exercises",
    package="reasoning-gym",
    version="0.1.25",
    generators=("sums", "products"),
    items=20,
    rng_seed=7,
    answer_characters=6,
    choices=4,
    trained=TrainedExercises(rng_seed=1, items=2),
)


def generated(count=20):
    for i in range(count):
        yield f"sums#{i}", f"Question: {i} + 1 =\nAnswer: {i + 1}"
        yield f"products#{i}", f"Question: {i} * 100 =\nAnswer: {i * 100}"


def test_wrong_answers_are_right_ones_of_the_same_generator():
    found = exercises(generated(), SPEC, ())
    assert len(found.test) == 40
    for item in found.test:
        left = int(item["prompt"].split()[1])
        right, made = left + 1, range(1, 21)
        if item["source"] == "products":
            right, made = left * 100, range(0, 2000, 100)
        assert item["choices"][item["answer"]] == str(right)
        assert len(set(item["choices"])) == 4
        assert {int(choice) for choice in item["choices"]} <= set(made)
        assert "target" not in item
    assert found == exercises(generated(), SPEC, ())


def test_answers_are_written_where_there_is_one_choice():
    found = exercises(generated(), SPEC.model_copy(update={"choices": 1}), ())
    assert found.test[0] == {
        "id": "sums#0",
        "source": "sums",
        "prompt": "Question: 0 + 1 =\nAnswer:",
        "target": "1",
    }


def test_what_a_corpus_holds_and_what_came_before_is_left_out():
    held = {question_of(text) for _, text in generated(2)}
    twice = [*generated(), ("sums#99", "Question: 5 + 1 =\nAnswer: 6")]
    twice += [
        ("sums#100", "Question: big =\nAnswer: 1234567"),
        ("sums#101", "Question: b\nAnswer: "),
    ]
    found = exercises(twice, SPEC, held)
    assert found.dropped == {"in the corpus": 4, "asked before": 1, "with no short answer": 2}
    assert not {question_of(item["prompt"] + " ") for item in found.test} & held


def test_too_few_answers_and_other_texts_are_refused():
    with pytest.raises(InputError, match="sums must give 4 answers that differ, got 3"):
        exercises(list(generated(3)), SPEC, ())
    with pytest.raises(InputError, match=r"sums#0 must be a question and its answer, got 'What"):
        exercises([("sums#0", "What is it?")], SPEC, ())
