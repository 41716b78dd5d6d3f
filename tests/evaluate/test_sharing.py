"""Two processes under gloo give what one gives, and fail together."""

import json
import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from bam_lab.errors import InputError, StageError
from bam_lab.evaluate.answering import Settings
from bam_lab.evaluate.harness import evaluate, load_tasks
from bam_lab.evaluate.sharing import shared
from tests.evaluate.harness_cases import (
    choice_task,
    completion_task,
    last_word_task,
    model,
    rolling_task,
    words,
)

WORLD = 2


def everything():
    """Return the scores of every kind of task, few-shot and sampled ones too; one fails."""
    tasks = load_tasks(
        [
            choice_task(n=7),
            choice_task("shots", n=5, num_fewshot=2),
            rolling_task(),
            last_word_task(),
            completion_task(n=3),
            completion_task(
                "drawn", n=5, generation_kwargs={"do_sample": True, "max_gen_toks": 9}, repeats=2
            ),
            completion_task("refused", generation_kwargs={"max_gen_toks": 500}),
            # One document: the second process has none.
            rolling_task("one", documents=[{"text": "b"}]),
        ]
    )
    found = evaluate(tasks, model(), words(), Settings("float32"))
    return {"rows": found.rows, "samples": found.samples, "failures": found.failures}


def failing(kind):
    """Return what a process is told when the second one fails in its own way."""

    def work(items):
        if dist.get_rank() == 1:
            raise kind("no such thing")
        return list(items)

    try:
        shared(list(range(5)), work)
    except (InputError, RuntimeError, StageError, ZeroDivisionError) as error:
        return [type(error).__name__, str(error)]
    return None


def run(rank, folder):
    torch.set_num_threads(1)
    place = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=WORLD)
    told = {
        "pieces": shared(list("abcde"), lambda items: [f"{rank}{item}" for item in items]),
        "fewer": shared(["a"], lambda items: [f"{rank}{item}" for item in items]),
        "none": shared([], list),
        "input": failing(InputError),
        "defect": failing(ZeroDivisionError),
        "memory": failing(torch.OutOfMemoryError),
        "found": everything(),
    }
    with open(os.path.join(folder, f"{rank}.json"), "w") as file:
        json.dump(told, file)
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gloo")
    processes.spawn(run, (str(folder),), nprocs=WORLD)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(WORLD)]


def test_work_is_shared_and_put_together_in_order(both):
    for told in both:
        assert told["pieces"] == ["0a", "1b", "0c", "1d", "0e"]
        assert told["fewer"] == ["0a"]
        assert told["none"] == []


def test_one_that_fails_makes_all_fail(both):
    assert both[0]["input"] == ["StageError", "no such thing"]
    assert both[1]["input"] == ["InputError", "no such thing"]
    name, message = both[0]["defect"]
    assert name == "RuntimeError"
    assert "process 1 must finish its share, got ZeroDivisionError('no such thing')" in message
    assert both[1]["defect"][0] == "ZeroDivisionError"
    assert [told["memory"][0] for told in both] == ["StageError", "OutOfMemoryError"]


def test_two_processes_score_as_one(both):
    alone = json.loads(json.dumps(everything()))
    assert both[0]["found"] == both[1]["found"]
    for part in ("rows", "samples"):
        assert len(alone[part]) == len(both[0]["found"][part])
        for one, two in zip(alone[part], both[0]["found"][part], strict=True):
            assert one.keys() == two.keys()
            for key, value in one.items():
                exact = not isinstance(value, float | list)
                assert two[key] == (value if exact else pytest.approx(value, rel=1e-5)), key
    assert alone["failures"].keys() == {"refused"}
    assert alone["failures"] == both[0]["found"]["failures"]


def test_one_process_needs_no_group():
    assert shared([1, 2], lambda items: [2 * item for item in items]) == [2, 4]
