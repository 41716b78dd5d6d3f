"""Tasks as lm-evaluation-harness asks them: prompts to the letter, scores, chance, permission."""

import math

import pytest

from bam_lab.errors import InputError, SpecError
from bam_lab.evaluate.answering import Settings
from bam_lab.evaluate.harness import evaluate, load_tasks
from bam_lab.evaluate.tasks.config import lm_eval_config
from bam_lab.evaluate.tasks.documents import Built
from bam_lab.evaluate.tasks.scoring import Execution
from bam_lab.spec.task_files import read_task
from tests.evaluate.harness_cases import model, words
from tests.evaluate.tasks.test_documents import choice
from tests.evaluate.tasks.test_problems import ROW, SOLUTION

CHOICES = ("no such thing", "one thing", "two things", "three")


def built(count=6, examples=0, **changes):
    made = [choice(i, CHOICES, i % 4, **changes) for i in range(count + examples)]
    return Built(tuple(made[:count]), tuple(made[count:]), {}, "somewhere 1.0")


def targets(*given):
    return Built(tuple({"id": f"d{i}", "source": "s", "prompt": prompt, "target": target}
                       for i, (prompt, target) in enumerate(given)))  # fmt: skip


def scored(config, **options):
    tasks = load_tasks([config])
    return tasks, evaluate(tasks, model(max_seq_len=1024), words(), Settings("float32"), **options)


def asked(config):
    """Return what lm-eval would ask of the first document: texts and their continuations."""
    (task,) = load_tasks([config]).tasks.values()
    task.set_fewshot_seed(1)
    task.build_all_requests(limit=1)
    return [instance.args for instance in task.instances]


def test_multiple_choice_is_asked_as_it_is_written():
    config = lm_eval_config(read_task("tort-law"), built(examples=5))
    assert asked(config) == [("Question 0?", f" {one}") for one in CHOICES]
    assert config["metadata"]["chance"] == {"acc": 0.25, "acc_norm": 0.25}
    assert config["metadata"]["documents"] == built(examples=5).digest
    assert (config["metadata"]["origin"], config["metadata"]["version"]) == ("somewhere 1.0", "1.0")
    tasks, found = scored(config)
    assert {row["metric"]: row["chance"] for row in found.rows} == config["metadata"]["chance"]
    assert tasks.facts["tort-law"].version == "1.0"
    assert found.failures == {}


def test_examples_stand_before_the_question_with_their_answers():
    config = lm_eval_config(read_task("tort-law"), built(examples=5), shots=2)
    text, continuation = asked(config)[0]
    first, second, question = text.split("\n\n")
    assert question == "Question 0?"
    for shown in (first, second):
        number = int(shown[9:].partition("?")[0])
        assert 6 <= number < 11
        assert shown == f"Question {number}? {CHOICES[number % 4]}"
    assert continuation == " no such thing"
    with pytest.raises(SpecError, match="shots must be at most the 5 examples"):
        lm_eval_config(read_task("tort-law"), built(examples=5), shots=6)


def test_continuations_go_on_as_the_text_did():
    config = lm_eval_config(read_task("law-continuation"), built(prompt="It was"))
    assert asked(config)[0] == ("It was", " no such thing")
    lines = lm_eval_config(read_task("code-continuation"), built())
    assert asked(lines)[1] == ("Question 0?", "\none thing")
    _, found = scored(config)
    assert {row["metric"] for row in found.rows} == {"acc", "acc_norm"}
    assert all(row["chance"] == 0.25 for row in found.rows)


def test_answers_weighed_without_their_question_are_read_twice():
    task = read_task("law-continuation").model_copy(update={"metric": "acc_mutual_info"})
    config = lm_eval_config(task, built(prompt="It was"))
    assert asked(config)[4] == ("", " no such thing")
    _, found = scored(config)
    assert {row["metric"] for row in found.rows} == {"acc", "acc_norm", "acc_mutual_info"}


def test_text_that_looks_like_a_template_or_a_list_stays_text():
    config = lm_eval_config(read_task("code-next-line"), targets(("a {{b}} {% c", "\n[1, 2]")))
    assert asked(config) == [("a {{b}} {% c", "\n[1, 2]")]
    _, found = scored(config)
    assert [row["metric"] for row in found.rows] == ["acc"]
    assert found.rows[0]["chance"] == 0.0


def test_a_word_has_a_perplexity_without_chance():
    _, found = scored(lm_eval_config(read_task("law-last-word"), targets(("bada dado", " bada"))))
    chances = {row["metric"]: row["chance"] for row in found.rows}
    assert chances == {"acc": 0.0, "perplexity": None}


def test_a_loss_is_of_the_answers_bytes():
    given = targets(("bada", "\n    dado"), ("dado", "\n    bada bada"))
    config = lm_eval_config(read_task("human-eval-loss"), given)
    assert asked(config) == [("bada", "\n    dado")]
    _, found = scored(config)
    (row,) = found.rows
    nats = [-sample["loglikelihoods"][0] for sample in found.samples]
    bytes_ = sum(len(item["target"]) for item in given.test)
    assert row["metric"] == "bits_per_byte"
    assert row["value"] == pytest.approx(sum(nats) / math.log(2) / bytes_, rel=1e-12)
    assert row["higher_is_better"] is False
    assert row["chance"] is None


def test_written_answers_are_compared_without_the_space_around_them():
    config = lm_eval_config(read_task("arithmetic-written"), targets(("Question: 1 + 1 =", "2")))
    (task,) = load_tasks([config]).tasks.values()
    assert task.process_results(task.eval_docs[0], ["2"]) == {"exact_match": 1.0}
    assert config["generation_kwargs"]["until"] == ["\n"]
    _, found = scored(config)
    assert found.rows[0]["metric"] == "exact_match"
    assert found.rows[0]["chance"] == 0.0


def test_completions_are_executed_only_where_that_is_allowed():
    item = {"id": ROW["task_id"], "source": "human-eval", "prompt": ROW["prompt"],
            "target": SOLUTION, "test": f"{ROW['test']}\ncheck(add)\n"}  # fmt: skip
    task = read_task("human-eval")
    with pytest.raises(InputError, match="human-eval runs code that the model writes, which must"):
        lm_eval_config(task, Built((item,)))
    execution = Execution(allow_unsafe=True)
    config = lm_eval_config(task, Built((item,)), execution=execution)
    _, found = scored(config)
    (row,) = found.rows
    assert (row["metric"], row["value"], row["chance"]) == ("pass@1", 0.0, 0.0)
    assert list(execution.outcomes) == ["HumanEval/0"]  # of the copy that lm-eval made
