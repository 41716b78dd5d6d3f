"""The door to lm-evaluation-harness: load tasks once, and evaluate any number of models on them.

    tasks = load_tasks(["arc-like"], [Path("eval/tasks")])
    for model in models:
        found = evaluate(tasks, model, words_of(tokenizer), Settings("float32"))
        found.rows, found.samples, found.failures

What is unusual, since lm-eval 0.4.13 does otherwise:
- only named tasks are read, never its own index of 14,000 files; nothing is asked of the network
  unless HF_HUB_OFFLINE=0 says so;
- a file's Python code runs only with `allow_code`; without it templates call nothing but methods of
  plain data;
- each task is evaluated by itself: one that fails is named with its reason, and the rest goes on;
- few-shot examples are drawn anew from one seed for every model, and are the same for every number
  of processes (`sharing.py`: lm-eval sees one process); never from the documents that are scored;
- the standard error of a perplexity is that of the mean it is made of (`perplexity_error`);
- an average of a group is refused where its tasks' versions or shots differ, or one has no score.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from bam_lab.errors import BamLabError, InputError, SpecError
from bam_lab.evaluate.answering import Settings, Words, completions, continuations, rolled
from bam_lab.evaluate.harness_checks import (
    check_code,
    facts_of,
    members_of,
    name_of,
    settle_shots,
)
from bam_lab.evaluate.harness_files import (
    code_in_config,
    code_in_file,
    problem_of,
    with_data,
    yaml_files,
)
from bam_lab.evaluate.harness_guards import guarded, quiet, seeded
from bam_lab.evaluate.harness_rows import (
    Row,
    TaskFacts,
    average_rows,
    perplexity_error,
    sample_rows,
    score_rows,
)
from bam_lab.evaluate.likelihood import Model
from bam_lab.spec.messages import nearest

BOOTSTRAP = 1000
"""Draws behind the standard error of a metric that has no formula."""

_NO_DATA = (
    "Its data set must be read once with a network: `bam-lab prepare --task NAME`, or "
    "HF_HUB_OFFLINE=0 where no suite asks it."
)
_SHOTS_SEED = 1234  # lm-eval's own
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DISABLE_MULTIPROC": "1",  # a pool that is forked after torch has threads may hang
}


@dataclass(frozen=True)
class Tasks:
    """Hold loaded tasks; `load_tasks` makes them.

    Attributes:
        tasks: name -> lm-eval's task.
        groups: name -> lm-eval's group.
        facts: name -> what its rows say of it.
        allow_code: whether templates may call anything.
        warnings: what lm-eval said while it loaded them.
    """

    tasks: Mapping[str, Any]
    groups: Mapping[str, Any]
    facts: Mapping[str, TaskFacts]
    allow_code: bool
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Evaluation:
    """Hold what one model scored (`harness_rows.py` lists the columns).

    Attributes:
        rows: a score for each task, metric and filter, then each group's averages.
        samples: one for each document, filter and metric.
        failures: task or group -> why it has no score.
        warnings: task -> what lm-eval said of it.
    """

    rows: list[Row] = field(default_factory=list)
    samples: list[Row] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, tuple[str, ...]] = field(default_factory=dict)


def load_tasks(
    wanted: Sequence[str | Mapping[str, Any]],
    folders: Sequence[Path] = (),
    *,
    allow_code: bool = False,
    shots: int | Mapping[str, int] | None = None,
) -> Tasks:
    """Load tasks and groups with all their documents.

    Args:
        wanted: names of tasks, groups or tags in the folders' files, or configurations.
        folders: searched for `*.yaml`, with all folders below.
        allow_code: whether Python code of task files may run. Allow it for files that you trust.
        shots: examples before each question: in every task, or in those of a name that is
            wanted; None leaves that to the task.

    Raises:
        InputError: lm-eval is not installed, or a folder is missing.
        SpecError: every task that cannot be loaded, with the reason.
    """
    _ready()
    from lm_eval.tasks import TaskManager

    files = yaml_files(folders)
    manager = TaskManager(include_path=[str(f) for f in folders], include_defaults=False)
    index = manager.task_index
    problems = [p for path in files if (p := problem_of(path))]
    tasks: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    facts: dict[str, TaskFacts] = {}
    with quiet() as heard, seeded(), _templates(allow_code):
        for one in wanted:
            try:
                own = shots.get(name_of(one)) if isinstance(shots, Mapping) else shots
                spec = _prepared(one, index, allow_code)
                found = manager.load([spec])
                again = tasks.keys() & found["tasks"].keys()
                if again:
                    raise InputError(
                        f"{min(again)} must be wanted once, got it again. Leave one out."
                    )
                for name, task in found["tasks"].items():
                    settle_shots(name, task, own)
                    facts[name] = facts_of(name, task)
            except BamLabError as error:
                problems.append(str(error))
            except Exception as error:  # whatever lm-eval or a task's own code says of it
                advice = _NO_DATA if isinstance(error, ConnectionError) else "Mend the task."
                problems.append(
                    f"{name_of(one)} must load, and its first document make a question, got "
                    f"{_told(error).rstrip('.')}. {advice}"
                )
            else:
                tasks |= found["tasks"]
                groups |= found.get("groups", {})
    if problems:
        raise SpecError(problems)
    return Tasks(tasks, groups, facts, allow_code, _once(heard))


def evaluate(
    tasks: Tasks,
    model: Model,
    words: Words,
    settings: Settings,
    *,
    limit: int | None = None,
    bootstrap_iters: int = BOOTSTRAP,
    tell: Callable[[int, int, str], None] = lambda done, all_, task: None,
) -> Evaluation:
    """Score one model on all tasks.

    Under `torch.distributed` every process must call it with equal arguments; all get everything.

    Args:
        tasks: of `load_tasks`.
        model: in evaluation mode, on its device.
        words: its tokenizer.
        settings: how it is read.
        limit: documents of each task at most, the first ones; None for all.
        bootstrap_iters: draws behind standard errors that have no formula; 0 for none.
        tell: called with tasks done, all of them, and the name of the next.

    Raises:
        SpecError: no task could read this model so.
    """
    _ready()
    common = {
        "precision": settings.precision,
        "batch_tokens": settings.batch_tokens,
        "max_len": settings.limit(model),
        "rule": settings.rule,
    }
    if limit is not None and limit < 1:
        raise SpecError(f"limit must be at least 1, got {limit}. Leave it out for all documents.")
    lm = adapter(model, words, settings)
    found = Evaluation()
    metrics: dict[str, Any] = {}
    for done, (name, task) in enumerate(tasks.tasks.items()):
        tell(done, len(tasks.tasks), name)
        facts = tasks.facts[name]
        lm.truncated, lm.working = 0, False
        with quiet() as heard, _templates(tasks.allow_code), _errors(), seeded():
            try:
                result, logged = _scored(lm, name, task, limit, bootstrap_iters)
                samples = sample_rows(facts, logged)
                own = common | {"truncated": lm.truncated}
                rows = score_rows(facts, result, samples, own)
            except BamLabError as error:
                found.failures[name] = str(error)
            except torch.OutOfMemoryError:
                found.failures[name] = "the device has too little memory: lower batch_tokens"
            except Exception as error:  # of the task; what breaks in our own work is a defect
                if lm.working:
                    raise
                found.failures[name] = f"the task must run, got {_told(error)}. Mend the task."
            else:
                found.rows.extend(rows)
                found.samples.extend(samples)
                metrics[name] = result["results"][name]
        if heard:
            found.warnings[name] = _once(heard)
    for name, group in tasks.groups.items():
        try:
            found.rows.extend(average_rows(name, group, found.rows, metrics))
        except InputError as error:
            found.failures[name] = str(error)
    return found


def adapter(model: Model, words: Words, settings: Settings) -> Any:
    """Return one of our models as lm-eval's `TemplateLM`.

    It counts the requests whose context was cut (`truncated`), and says whether it was stopped
    inside its own work (`working`).
    """
    _ready()
    from lm_eval.api.model import TemplateLM

    class Adapter(TemplateLM):  # type: ignore[misc]
        truncated, working = 0, False
        eot_token_id = words.end

        def tok_encode(self, string: str, *_: Any, **__: Any) -> list[int]:
            return list(words.encode(string))

        def loglikelihood(self, requests: Any, disable_tqdm: bool = True) -> Any:
            for request in requests:
                if not request.args[1]:
                    raise InputError(
                        f"document {request.doc_id} must have a continuation to score, got none. "
                        "Mend the task's choices or targets, or the document."
                    )
            return super().loglikelihood(requests, disable_tqdm=True)

        def _loglikelihood_tokens(self, requests: Any, **_: Any) -> list[tuple[float, bool]]:
            for (context, text), _ids, continuation in requests:
                if not continuation:
                    raise InputError(
                        f"{text!r} must be tokens of its own behind {context[-20:]!r}, got none: "
                        "they are one token together. Begin it with a space (target_delimiter)."
                    )
            pairs = [(context or [words.end], own) for _, context, own in requests]
            with self._work():
                found = continuations(model, settings, pairs)
            self.truncated += sum(one.truncated > 0 for one in found)
            return [(-one.nats, one.greedy) for one in found]

        def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = True) -> list[float]:
            for request in requests:
                if not request.args[0]:
                    raise InputError(
                        f"document {request.doc_id} must have text, got none. Leave it out."
                    )
            with self._work():
                texts = [request.args[0] for request in requests]
                return [-one.nats for one in rolled(model, words, settings, texts)]

        def generate_until(self, requests: Any, disable_tqdm: bool = True) -> list[str]:
            with self._work():
                found = completions(model, words, settings, [request.args for request in requests])
            self.truncated += sum(one.truncated > 0 for one in found)
            return [one.text for one in found]

        @contextmanager
        def _work(self) -> Iterator[None]:
            self.working = True
            yield
            self.working = False

    return Adapter()


def _ready() -> None:
    """Import lm-eval, offline."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)  # it and what it imports read them once
    try:
        import lm_eval.evaluator
        import lm_eval.tasks  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"tasks need lm-evaluation-harness, got {_told(error)}. "
            "Run: pip install 'bam-lab[eval]'"
        ) from error


def _prepared(wanted: Any, index: dict[str, Any], allow_code: bool) -> Any:
    """Return what lm-eval is to load, after a look at its code; place data files of the index."""
    from lm_eval.tasks._index import TaskIndex

    if isinstance(wanted, Mapping):
        check_code(name_of(wanted), code_in_config(wanted) + _scripts(wanted), allow_code)
        wanted = with_data(wanted, None)
        if not isinstance(wanted["task"], list):
            return wanted
        # A group given as it is: lm-eval would write its own settings into its tasks.
        index[name_of(wanted)] = TaskIndex.entry_from_config(wanted)
        wanted = name_of(wanted)
    if wanted not in index:
        close = nearest(wanted, index)
        raise InputError(f"{wanted} must be a task of the folders given, got none. {close}")
    for name in members_of(wanted, index):
        entry = index[name]
        if entry.yaml_path is None:
            continue
        code = code_in_file(entry.yaml_path)
        check_code(name, code + _scripts(entry.cfg), allow_code)
        if not code:
            config = with_data(entry.cfg, entry.yaml_path.parent)
            index[name] = replace(entry, yaml_path=None, cfg=config)
    return wanted


def _scripts(config: Mapping[str, Any]) -> list[str]:
    """Return metrics that lm-eval would load as scripts of the `evaluate` library."""
    import lm_eval.api.metrics  # noqa: F401, fills the registry
    from lm_eval.api.registry import metric_registry

    if config.get("process_results") is not None:  # it computes them itself
        return []
    inside = config["task"] if isinstance(config.get("task"), list) else []
    listed = [one for one in config.get("metric_list") or [] if isinstance(one, Mapping)]
    names = [one["metric"] for one in listed if isinstance(one.get("metric"), str)]
    own = [f"metric {name}" for name in names if name not in metric_registry]
    return own + [one for x in inside if isinstance(x, Mapping) for one in _scripts(x)]


def _scored(
    lm: Any, name: str, task: Any, limit: int | None, bootstrap_iters: int
) -> tuple[Any, list[Any]]:
    """Return lm-eval's results of one task, and what it logged of each document."""
    from lm_eval.evaluator import evaluate

    task._instances = None  # of another model
    task.set_fewshot_seed(_SHOTS_SEED)
    result = evaluate(
        lm, {"tasks": {name: task}}, limit=limit, bootstrap_iters=bootstrap_iters,
        confirm_run_unsafe_code=True,  # `load_tasks` has asked
    )  # fmt: skip
    logged = result["samples"][name]
    if task.OUTPUT_TYPE == "multiple_choice":
        inside = getattr(task, "multiple_input", 0)
        for sample in logged:
            sample["choices"] = task.doc_to_choice(sample["doc"])
            right = task.doc_to_text if inside else task.doc_to_target
            sample["gold"] = right(sample["doc"])
    task._instances = None
    return result, logged


@contextmanager
def _templates(allow_code: bool) -> Iterator[None]:
    """Let templates call only methods of plain data, while the context lasts."""
    import lm_eval.utils

    kept = lm_eval.utils.env
    try:
        lm_eval.utils.env = kept if allow_code else guarded(kept)
        yield
    finally:
        lm_eval.utils.env = kept


@contextmanager
def _errors() -> Iterator[None]:
    """Let perplexities have `perplexity_error`, while the context lasts."""
    import lm_eval.evaluator_utils
    from lm_eval.api.metrics import perplexity

    kept = lm_eval.evaluator_utils.stderr_for_metric

    def errors(metric: Any, bootstrap_iters: int) -> Any:
        ours = metric is perplexity and bootstrap_iters > 0
        return perplexity_error if ours else kept(metric, bootstrap_iters)

    try:
        lm_eval.evaluator_utils.stderr_for_metric = errors
        yield
    finally:
        lm_eval.evaluator_utils.stderr_for_metric = kept


def _once(heard: Sequence[str]) -> tuple[str, ...]:
    """Return each warning once, but those on how we load."""
    return tuple(dict.fromkeys(one for one in heard if "Custom kwargs can be passed" not in one))


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
