"""What lm-evaluation-harness found, as tidy rows: one a metric, and one a document and metric.

A score is: kind (`task`, or `group` for an average), task, version, metric, filter, shots, n
(documents), value, stderr (None where there is none; of a perplexity `perplexity_error`),
higher_is_better, chance (what guessing gives; None where the task's metadata does not say),
truncated (requests whose context was cut), precision, batch_tokens, max_len, rule.

A sample is: task, version, shots, filter, doc_id, doc_hash, prompt_hash, target_hash, metric, value
(None where a metric is of all documents only), loglikelihoods (of the choices, or of the text, in
nats; empty for completions), answer, target: of choices their numbers, else texts. Sorted by task,
document and metric, so that two models are paired by (task, doc_id, doc_hash).
"""

import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bam_lab.errors import InputError
from bam_lab.evaluate.harness_guards import quiet, seeded

Row = dict[str, Any]
UNVERSIONED = "unversioned"
"""The version of a task that states none."""

_WEIGHTED = ("bits_per_byte", "byte_perplexity", "word_perplexity")


@dataclass(frozen=True)
class TaskFacts:
    """Say what a task is.

    Attributes:
        name: as lm-eval knows it.
        version: as its metadata states it.
        shots: examples before each question.
        kind: lm-eval's `output_type`.
        chance: what guessing gives, of all accuracies or by metric.
    """

    name: str
    version: str
    shots: int
    kind: str
    chance: float | Mapping[str, float] | None

    def chance_of(self, metric: str) -> float | None:
        """Return what guessing gives for a metric."""
        if isinstance(self.chance, Mapping):
            return self.chance.get(metric)
        return self.chance if metric.startswith("acc") else None


def chance_in(name: str, metadata: Mapping[str, Any] | None) -> float | dict[str, float] | None:
    """Return a task's `metadata.chance`: a number, or one a metric.

    Raises:
        InputError: it is not between 0 and 1.
    """
    told = (metadata or {}).get("chance")
    for value in told.values() if isinstance(told, Mapping) else [told]:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and 0 <= value <= 1):
            raise InputError(
                f"{name}: metadata.chance must be between 0 and 1, got {value!r}. Write what "
                "guessing gives, or one number a metric."
            )
    if isinstance(told, Mapping):
        return {str(metric): float(value) for metric, value in told.items()}
    return None if told is None else float(told)


def score_rows(
    facts: TaskFacts, result: Mapping[str, Any], samples: Sequence[Row], common: Row
) -> list[Row]:
    """Return a row for each metric and filter.

    Args:
        facts: the task.
        result: of lm-eval: its `results` of this task.
        samples: its sample rows.
        common: what all rows of the task share: truncated, precision and so on.

    Raises:
        InputError: a metric is NaN or infinite.
    """
    better = result["higher_is_better"].get(facts.name, {})
    rows = []
    for metric, filter_, value, stderr in metrics_in(result["results"][facts.name]):
        if not math.isfinite(value):
            raise InputError(
                f"{facts.name}: {metric} must be finite, got {value}. Look at its documents."
            )
        own = [r for r in samples if (r["metric"], r["filter"]) == (metric, filter_)]
        rows.append(
            {
                "kind": "task",
                "task": facts.name,
                "version": facts.version,
                "metric": metric,
                "filter": filter_,
                "shots": facts.shots,
                "n": len(own),
                "value": value,
                "stderr": stderr,
                "higher_is_better": better.get(metric),
                "chance": facts.chance_of(metric),
            }
            | common
        )
    return rows


def metrics_in(result: Mapping[str, Any]) -> list[tuple[str, str, float, float | None]]:
    """Return (metric, filter, value, stderr) of lm-eval's flat keys `metric,filter`."""
    found = []
    for key, value in result.items():
        metric, comma, filter_ = key.rpartition(",")
        if comma and not metric.endswith("_stderr"):
            stderr = result.get(f"{metric}_stderr,{filter_}")
            known = isinstance(stderr, int | float) and math.isfinite(stderr)
            found.append((metric, filter_, float(value), float(stderr) if known else None))  # type: ignore[arg-type]
    return found


def sample_rows(facts: TaskFacts, samples: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return a row for each document, filter and metric.

    Args:
        facts: the task.
        samples: of lm-eval: what it logged of this task; of choices with `choices` and `gold`,
            the texts and which is right.

    Raises:
        InputError: a document's right choice is none of its choices: lm-eval would count it wrong.
    """
    rows = []
    for sample in samples:
        found = [response[0] for response in sample["resps"]]
        nats = [] if facts.kind == "generate_until" else [_first(x) for x in found]
        target = _target(facts, sample)
        for metric in sample["metrics"]:
            rows.append(
                {
                    "task": facts.name,
                    "version": facts.version,
                    "shots": facts.shots,
                    "filter": sample["filter"],
                    "doc_id": sample["doc_id"],
                    "doc_hash": sample["doc_hash"],
                    "prompt_hash": sample["prompt_hash"],
                    "target_hash": sample["target_hash"],
                    "metric": metric,
                    "value": _of_one(metric, sample[metric]),
                    "loglikelihoods": nats,
                    "answer": _answer(facts, sample, metric, nats),
                    "target": target,
                }
            )
    return sorted(rows, key=lambda row: (row["doc_id"], row["filter"]))


def _first(response: Any) -> float:
    return float(response[0] if isinstance(response, list | tuple) else response)


def _of_one(metric: str, value: Any) -> float | None:
    """Return a document's own value; None where a metric is of all documents only, or no float.

    Of a text lm-eval keeps the log-likelihood, or that and a weight, under the name of the metric.
    """
    if isinstance(value, bool | int | float) or hasattr(value, "item"):
        is_nats = metric == "perplexity" and value <= 0
        return _exp(-float(value)) if is_nats else float(value)
    if metric not in _WEIGHTED or not value[1]:
        return None
    nats = float(-value[0] / value[1])
    return nats / math.log(2) if metric == "bits_per_byte" else _exp(nats)


def _exp(nats: float) -> float | None:
    return math.exp(nats) if nats < math.log(sys.float_info.max) else None


def perplexity_error(loglikelihoods: Sequence[float]) -> float:
    """Return the standard error of a perplexity, e to the mean negative log-likelihood.

    It is that of the mean, times the perplexity (delta method), so an interval is perplexity *
    exp(+-z * error / perplexity), which stays above 0. lm-eval draws documents anew instead: where
    few of them weigh most, its error is larger than the perplexity, which less its error is then
    negative; and its squares overflow, which costs the task all its scores.

    Args:
        loglikelihoods: of two documents or more, in nats.
    """
    mean_error = statistics.stdev(loglikelihoods) / math.sqrt(len(loglikelihoods))
    return math.exp(-statistics.fmean(loglikelihoods)) * mean_error


def _target(facts: TaskFacts, sample: Mapping[str, Any]) -> Any:
    """Return what is right: of choices their numbers, else text; None where all text is scored."""
    if facts.kind != "multiple_choice":
        return None if facts.kind == "loglikelihood_rolling" else sample["target"]
    choices, right = sample["choices"], sample["gold"]
    if isinstance(right, str) and right in choices:
        right = choices.index(right)
    for one in right if isinstance(right, list) else [right]:
        if not (isinstance(one, int) and 0 <= one < len(choices)):
            raise InputError(
                f"{facts.name}: document {sample['doc_id']}: doc_to_target must name one of "
                f"{len(choices)} choices, got {one!r}. Mend the task or the document."
            )
    return right


def _answer(facts: TaskFacts, sample: Mapping[str, Any], metric: str, nats: Sequence[float]) -> Any:
    """Return what the model answers: a text, or the choice that the metric takes; else None."""
    if facts.kind == "generate_until":
        return sample["filtered_resps"][0]
    if facts.kind != "multiple_choice":
        return None
    choices = sample["choices"]
    own = list(nats[: len(choices)])  # behind them stand the choices without context, where asked
    if metric == "acc_norm":
        own = [x / max(len(text), 1) for x, text in zip(own, choices, strict=True)]
    elif metric == "acc_mutual_info":
        own = [x - alone for x, alone in zip(own, nats[len(choices) :], strict=True)]
    return own.index(max(own))


def average_rows(
    name: str, group: Any, rows: Sequence[Row], metrics: Mapping[str, Any]
) -> Iterator[Row]:
    """Yield a group's averages over its tasks, where they may be averaged.

    Args:
        name: of the group.
        group: lm-eval's.
        rows: of its tasks, and of others.
        metrics: task -> lm-eval's own results.

    Raises:
        InputError: versions or shots differ, or a task has no score.
    """
    if not group.has_aggregation:
        return
    members = [task.task_name for task in group.get_all_tasks()]
    missing = [member for member in members if member not in metrics]
    if missing:
        raise InputError(
            f"{name} must have a score of every task, got none of {', '.join(missing)}. See why "
            "they failed."
        )
    own = [row for row in rows if row["kind"] == "task" and row["task"] in members]
    for key, what in (("version", "versions"), ("shots", "numbers of shots")):
        if len({row[key] for row in own}) > 1:
            told = sorted({f"{row['task']} {row[key]}" for row in own})
            raise InputError(
                f"{name} must average tasks of equal {what}, got {', '.join(told)}. Average those "
                "that are alike."
            )
    with quiet(), seeded():
        averages = metrics_in(group.aggregate(metrics))
    for metric, filter_, value, stderr in averages:
        parts = [row for row in own if (row["metric"], row["filter"]) == (metric, filter_)]
        if len(parts) < len(members):
            raise InputError(
                f"{name} must average a metric that all its tasks have, got {metric} of "
                f"{len(parts)} of {len(members)}. Mend its aggregate_metric_list."
            )
        sums = {key: sum(row[key] for row in parts) for key in ("n", "truncated")}
        average = {"kind": "group", "task": name, "value": value, "stderr": stderr, "chance": None}
        yield parts[0] | average | sums
