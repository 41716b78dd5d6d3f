"""HumanEval: what a loss is of, and what is executed."""

import pytest

from bam_lab.errors import InputError
from bam_lab.evaluate.tasks.problems import human_eval
from bam_lab.evaluate.tasks.scoring import Execution, bits_per_byte
from bam_lab.spec.tasks import HumanEval, PackageFile

FILE = PackageFile(package="human-eval", version="1", sha256="0" * 64, member="*")
LOSS = HumanEval(build="human_eval", file=FILE, answer_characters=60, min_items=1)
TEST = HumanEval(build="human_eval", file=FILE, answer_characters=None, min_items=1)
SOLUTION = "    total = 0\n    for value in values:\n        total += value\n    return total\n"
ROW = {
    "task_id": "HumanEval/0",
    "prompt": 'def add(values):\n    """Add them up."""\n',
    "canonical_solution": SOLUTION,
    "test": "def check(candidate):\n    assert candidate([1, 2]) == 3\n",
    "entry_point": "add",
}


def built(spec, kind, row=ROW):
    return human_eval([("data/HumanEval#1", row)], kind, spec)


def test_a_loss_is_of_the_first_whole_lines_and_the_white_space_before():
    (item,) = built(LOSS, "loss").test
    assert item["prompt"] == 'def add(values):\n    """Add them up."""'
    assert item["target"] == "\n    total = 0\n    for value in values:"
    assert "test" not in item
    (item,) = built(LOSS.model_copy(update={"answer_characters": 200}), "loss").test
    assert item["target"] == "\n" + SOLUTION.rstrip()


def test_a_solution_whose_first_line_is_long_is_left_out():
    found = built(LOSS.model_copy(update={"answer_characters": 5}), "loss")
    assert found.test == ()
    assert found.dropped == {"with a long first line": 1}


def test_bits_per_byte_count_the_bytes_of_the_answer():
    assert bits_per_byte({"target": "é = 1"}, [(-12.0, False)]) == {"bits_per_byte": (-12.0, 6)}


def test_completions_are_run_against_the_test():
    (item,) = built(TEST, "generate").test
    execution = Execution(allow_unsafe=True)
    assert execution(item, [SOLUTION]) == {"pass@1": 1.0}
    assert execution.outcomes["HumanEval/0"].why == "ran to its end"
    assert execution(item, [["    return 4"]]) == {"pass@1": 0.0}
    assert execution.outcomes["HumanEval/0"].why == "AssertionError"
    assert execution(item, ["    exit()"]) == {"pass@1": 0.0}


def test_another_file_is_refused_with_its_line():
    with pytest.raises(InputError, match=r"data/HumanEval#1 must be a problem of HumanEval"):
        built(TEST, "generate", {"prompt": "x"})
    with pytest.raises(InputError, match="data/HumanEval#1 must be"):
        built(LOSS, "loss", ROW | {"canonical_solution": None})
