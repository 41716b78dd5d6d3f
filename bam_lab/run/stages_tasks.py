"""The stages of tasks: documents are built once, then each model answers them.

- `build_tasks` writes `NAME.json` for each task: its documents, hash and origin.
- `tasks` writes `scores.csv` (tidy: a row for each task, metric and filter), `answers.json` (what
  was answered item by item, without text; and why tasks failed) and `samples.parquet` (a row for
  each document and metric, with hashes).

A task that fails is named with its reason, and the others have their scores.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bam_lab.data.tokens import tokenizer as tokenizers
from bam_lab.errors import BamLabError, InputError, SpecError
from bam_lab.evaluate.answering import Settings, words_of
from bam_lab.evaluate.harness import Evaluation, Tasks, evaluate, load_tasks
from bam_lab.evaluate.harness_files import own_folders
from bam_lab.evaluate.tasks.build import build
from bam_lab.evaluate.tasks.config import lm_eval_config
from bam_lab.evaluate.tasks.documents import Built
from bam_lab.evaluate.tasks.scoring import Execution
from bam_lab.record.files import intact, read_json, write_json
from bam_lab.record.tables import write_rows
from bam_lab.run.context import Progress, StageContext
from bam_lab.run.stages_common import decode, load_any
from bam_lab.run.stages_evaluate import write_csv
from bam_lab.spec.tasks import Continuation, HarnessTask, LastWord, NextLine, TaskSpec
from bam_lab.train.numerics import prepare

ALLOW_CODE = "BAM_LAB_ALLOW_CODE"
"""Environment variable: `1` lets tasks run code that models write where it can be shut in, `unsafe`
anywhere."""
SCORES = (
    "kind",
    "task",
    "version",
    "metric",
    "filter",
    "shots",
    "n",
    "value",
    "stderr",
    "higher_is_better",
    "chance",
    "truncated",
    "precision",
    "batch_tokens",
    "max_len",
    "rule",
    "documents",
)


def build_tasks(context: StageContext) -> None:
    """Write `NAME.json` for each task of the spec."""
    tasks = [decode(raw, TaskSpec) for raw in context.spec["tasks"]]
    digests = {}
    for done, task in enumerate(tasks):
        context.check_stop()
        context.report(Progress(done, len(tasks), note=task.name))
        built = build(task, context.cache, context.inputs["corpus"])
        digests[task.name] = built.digest
        content = {"task": task.model_dump(mode="json", by_alias=True), "digest": built.digest}
        write_json(context.work / f"{task.name}.json", content | dataclasses.asdict(built))
    context.facts["digests"] = digests


def answer_tasks(context: StageContext) -> None:
    """Write `scores.csv`, `answers.json` and `samples.parquet` of one model."""
    prepare(context.threads)
    model = load_any(context.inputs["model"]).to(context.numerics.device).eval()
    words = words_of(tokenizers.load(context.inputs["tokenizer"] / "tokenizer"))
    answer(context, model, words)


def answer(context: StageContext, model: Any, words: Any) -> None:
    """Let a loaded model answer the tasks of the stage's spec.

    Raises:
        InputError: not one task could be answered.
    """
    asked = context.spec["asked"]
    tasks, digests, failures = loaded(asked, context.inputs.get("documents"))

    def tell(done: int, total: int, name: str) -> None:
        context.check_stop()
        context.report(Progress(done, total, note=name))

    settings = Settings(context.numerics.precision, rule=context.spec.get("rule", "prompt"))
    try:
        found, refused = evaluate(tasks, model, words, settings, tell=tell), False
    except SpecError as error:  # of a method without a rule of inference no task can be asked
        found, refused = Evaluation(failures=dict.fromkeys(tasks.tasks, str(error))), True
    failures |= found.failures
    if not found.rows and not refused:
        told = "; ".join(f"{name}: {why}" for name, why in failures.items())
        raise InputError(f"some task must be answered, got none. {told}")
    rows = [row | {"documents": digests.get(row["task"], "")} for row in found.rows]
    write_csv(context.work / "scores.csv", SCORES, rows)
    write_json(
        context.work / "answers.json",
        {
            "answers": answers_of(asked, found.samples, context.inputs.get("documents")),
            "failures": failures,
            "warnings": {name: list(texts) for name, texts in found.warnings.items()},
        },
    )
    write_rows(context.work / "samples.parquet", found.samples)


def loaded(
    asked: Sequence[Mapping[str, Any]], documents: Path | None
) -> tuple[Tasks, dict[str, str], dict[str, str]]:
    """Return the tasks, the hash of each one's documents, and those that cannot be asked, and why.

    Raises:
        InputError: none of them can be asked.
        SpecError: lm-evaluation-harness cannot load one.
    """
    wanted: list[str | Mapping[str, Any]] = []
    folders: list[Path] = []
    digests, failures = {}, {}
    allowed = os.environ.get(ALLOW_CODE, "")
    execution = Execution(allow_unsafe=allowed == "unsafe") if allowed else None
    theirs_with_code = False
    for one in asked:
        try:
            if "documents" in one["task"]:
                task, built = read_built(documents, one["name"])
                digests[task.name] = built.digest
                wanted.append(lm_eval_config(task, built, one["shots"], execution))
            else:
                harness = decode(one["task"], HarnessTask)
                if harness.executes and execution is None:
                    raise InputError(
                        "it runs code that the model writes, which must be allowed: --allow-code"
                    )
                theirs_with_code |= harness.code
                folders += own_folders(harness.folders)
                wanted.append(one["name"])
        except BamLabError as error:
            failures[one["name"]] = str(error)
    if not wanted:
        told = "; ".join(f"{name}: {why}" for name, why in failures.items())
        raise InputError(f"some task must be askable, got none. {told}")
    shots = {one["name"]: one["shots"] for one in asked}
    folders = list(dict.fromkeys(folders))
    return load_tasks(wanted, folders, allow_code=theirs_with_code, shots=shots), digests, failures


def read_built(folder: Path | None, name: str) -> tuple[TaskSpec, Built]:
    """Return a task and its documents as `build_tasks` left them."""
    assert folder is not None
    with intact(folder):
        raw = read_json(folder / f"{name}.json")
        task = decode(raw["task"], TaskSpec)
    return task, Built(tuple(raw["test"]), tuple(raw["examples"]), raw["dropped"], raw["origin"])


def answers_of(
    asked: Sequence[Mapping[str, Any]], samples: Sequence[Mapping[str, Any]], folder: Path | None
) -> dict[str, Any]:
    """Return, of the metric that stands for each task, every item's value, answer and document.

    `document` is what the item is about, as a number: items of one are not independent. `given` and
    `wanted` are numbers of choices, None where the answer is a text.
    """
    found: dict[str, Any] = {}
    for one in asked:
        name, task = one["name"], one["task"]
        key = (name, task["metric"], task.get("filter", "none"))
        own = [row for row in samples if (row["task"], row["metric"], row["filter"]) == key]
        if not own:
            continue
        documents = _documents(folder, name) if "documents" in task else range(len(own))
        choice = all(isinstance(row["target"], int) for row in own)
        found[name] = {
            "items": [row["doc_hash"][:16] for row in own],
            "document": [documents[row["doc_id"]] for row in own],
            "value": [row["value"] for row in own],
            "given": [row["answer"] if choice else None for row in own],
            "wanted": [row["target"] if choice else None for row in own],
        }
    return found


def _documents(folder: Path | None, name: str) -> list[int]:
    """Return the number of each item's document; places cut from one text share it."""
    task, built = read_built(folder, name)
    ids = [item["id"] for item in built.test]
    if isinstance(task.documents, Continuation | LastWord | NextLine):
        ids = [text.rpartition("#")[0] for text in ids]
    numbers = {text: number for number, text in enumerate(dict.fromkeys(ids))}
    return [numbers[text] for text in ids]
