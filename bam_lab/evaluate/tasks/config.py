"""Make a task of lm-evaluation-harness, in memory, of a task of ours and its documents.

`harness.load_tasks` takes the result. The task's own metric is scored, and `acc` and `acc_norm` of
all multiple choice; their chance level stands in the metadata.
"""

from typing import Any, assert_never

from bam_lab.errors import InputError, SpecError
from bam_lab.evaluate.harness_files import in_memory
from bam_lab.evaluate.tasks.documents import Built
from bam_lab.evaluate.tasks.problems import STOPS
from bam_lab.evaluate.tasks.scoring import PASSED, Execution, bits_per_byte
from bam_lab.spec.tasks import Continuation, HumanEval, LastWord, NextLine, TaskSpec

EXAMPLES = "examples"
_SHORT_ANSWER = 32
_FUNCTION = 384
"""Tokens of a completion, at most."""


def lm_eval_config(
    task: TaskSpec, built: Built, shots: int | None = None, execution: Execution | None = None
) -> dict[str, Any]:
    """Return an inline configuration of lm-eval.

    Args:
        task: of `eval/tasks`.
        built: its documents.
        shots: examples before each question; None for as many as the task says.
        execution: runs completions; for tasks that execute them.

    Raises:
        InputError: the task executes what models write, and nobody allowed it.
        SpecError: there are fewer examples than shots.
    """
    shots = task.shots if shots is None else shots
    if shots > len(built.examples):
        raise SpecError(
            f"{task.name}: shots must be at most the {len(built.examples)} examples that are set "
            f"aside, got {shots}. Raise `examples` in its task.yaml."
        )
    if task.executes and execution is None:
        raise InputError(
            f"{task.name} runs code that the model writes, which must be allowed, got no "
            "permission. Allow it, or leave the task out."
        )
    splits = {"test": built.test}
    config: dict[str, Any] = {
        "task": task.name,
        "test_split": "test",
        # Names of fields, not templates: lm-eval reads what a template gives, such as "[1, 2]".
        "doc_to_text": "prompt",
        "doc_to_target": "answer" if task.kind == "multiple_choice" else "target",
        "target_delimiter": _delimiter(task),
        "num_fewshot": shots,
    }
    if built.examples:
        splits[EXAMPLES] = built.examples
        config["fewshot_split"] = EXAMPLES
    config |= _scored(task, execution)
    metrics = [metric["metric"] for metric in config["metric_list"]]
    shares = {} if task.chance is None else dict.fromkeys(metrics, task.chance)
    config["metadata"] = {
        "version": task.version,
        "chance": {m: c for m, c in shares.items() if m != "perplexity"},
        "group": task.group,
        "metric": task.metric,
        "documents": built.digest,
        "origin": built.origin,
    }
    return in_memory(config, splits)


def _delimiter(task: TaskSpec) -> str:
    """Return what stands between prompt and answer: what stood there in the text."""
    match task.documents:
        case LastWord() | NextLine() | HumanEval():
            return ""  # the target begins with it
        case Continuation(unit="lines"):
            return "\n"
        case _:
            return " "


def _scored(task: TaskSpec, execution: Execution | None) -> dict[str, Any]:
    match task.kind:
        case "multiple_choice":
            # Mutual information reads each answer twice: only where it is wanted.
            names = dict.fromkeys(["acc", "acc_norm", task.metric])
            metrics = [_metric(name) for name in names]
            return {"output_type": "multiple_choice", "doc_to_choice": "choices"} | _list(metrics)
        case "cloze":
            metrics = [_metric("acc")]
            if not isinstance(task.documents, NextLine):  # e to the nats of a line is no number
                metrics.append(_metric("perplexity", "perplexity", better=False))
            return {"output_type": "loglikelihood"} | _list(metrics)
        case "loss":
            metrics = [_metric("bits_per_byte", "bits_per_byte", better=False)]
            scoring = {"process_results": bits_per_byte}
            return {"output_type": "loglikelihood"} | _list(metrics) | scoring
        case "generate":
            return {"output_type": "generate_until"} | _generated(task, execution)
        case _:
            assert_never(task.kind)


def _generated(task: TaskSpec, execution: Execution | None) -> dict[str, Any]:
    greedy = {"do_sample": False, "temperature": 0.0}
    if execution is None or not task.executes:
        until = {"until": ["\n"], "max_gen_toks": _SHORT_ANSWER}
        return {
            "generation_kwargs": greedy | until,
            "filter_list": [
                {
                    "name": "none",
                    "filter": [{"function": "remove_whitespace"}, {"function": "take_first"}],
                }
            ],
        } | _list([_metric("exact_match")])
    until = {"until": list(STOPS), "max_gen_toks": _FUNCTION}
    return {"generation_kwargs": greedy | until, "process_results": execution} | _list(
        [_metric(PASSED)]
    )


def _metric(name: str, aggregation: str = "mean", better: bool = True) -> dict[str, Any]:
    return {"metric": name, "aggregation": aggregation, "higher_is_better": better}


def _list(metrics: list[dict[str, Any]]) -> dict[str, Any]:
    return {"metric_list": metrics}
