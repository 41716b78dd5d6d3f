"""What is looked at before a task of lm-evaluation-harness may be asked: code, shots, metadata."""

from collections.abc import Mapping, Sequence
from typing import Any

from bam_lab.errors import InputError
from bam_lab.evaluate.harness_rows import UNVERSIONED, TaskFacts, chance_in


def name_of(wanted: Any) -> str:
    """Return the name of a task or group, wanted by name or as a configuration."""
    return wanted if isinstance(wanted, str) else str(wanted.get("group") or wanted.get("task"))


def members_of(name: str, index: Mapping[str, Any]) -> list[str]:
    """Return a name of the index and all that it stands for."""
    found: list[str] = []
    left = [name]
    while left:
        one = left.pop()
        if one in index and one not in found:
            found.append(one)
            entry = index[one]
            listed = (entry.cfg or {}).get("task")
            left += [name_of(x) for x in listed] if isinstance(listed, list) else []
            left += sorted(entry.tags) if entry.kind.name == "TAG" else []
    return found


def check_code(name: str, code: Sequence[str], allow_code: bool) -> None:
    """Refuse code that nobody allowed.

    Raises:
        InputError: there is some.
    """
    if code and not allow_code:
        raise InputError(
            f"{name} must be data alone, got Python code: {'; '.join(code)}. Allow code if you "
            "trust where it comes from."
        )


def settle_shots(name: str, task: Any, shots: int | None) -> None:
    """Set the number of examples, and see that there are so many beside what is scored.

    Raises:
        InputError: there are fewer, or a question could be its own example.
    """
    if shots is not None:
        task.set_config("num_fewshot", shots)
    config, own = task.config, getattr(task, "fewshot_cfg", None)
    count = config.num_fewshot or 0
    if not count or own is None:
        return
    scored = config.test_split or config.validation_split
    source = own.split or config.training_split or config.validation_split or config.test_split
    apart = own.split is not None and own.split == config.test_split  # lm-eval leaves it out
    if source == scored and not apart and not own.samples:
        raise InputError(
            f"{name}: fewshot_split must be another split than the one that is scored, {scored}, "
            f"with num_fewshot {count}: a question would be its own example. Name one."
        )
    there = len(task.sampler.df) - apart
    if there < count:
        raise InputError(
            f"{name}: num_fewshot must be at most the {there} examples that there are, got "
            f"{count}. Ask for fewer."
        )


def facts_of(name: str, task: Any) -> TaskFacts:
    """Return what rows say of a task.

    Raises:
        InputError: its metadata state an impossible chance level.
    """
    metadata = task.config.metadata
    version = (metadata or {}).get("version", UNVERSIONED)
    shots = task.config.num_fewshot or 0
    return TaskFacts(name, str(version), shots, task.OUTPUT_TYPE, chance_in(name, metadata))
