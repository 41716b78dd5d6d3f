"""What a task asks, as plain data, and the checks that every task's documents pass.

A document has `id`, `source` (what its text is of) and `prompt`; of multiple choice `choices`
(texts) and `answer` (the number of the right one, from 0); of other kinds `target` (the right text,
of cloze and loss with the white space before it), and `test` where a completion is to be executed.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bam_lab.errors import InputError
from bam_lab.spec.tasks import CHANCE_DIGITS, Kind, TaskSpec

Item = dict[str, Any]

_TOLD = 5
"""Problems that a message lists at most."""


@dataclass(frozen=True)
class Built:
    """Hold a task's documents.

    Attributes:
        test: what is scored.
        examples: what stands before a question where shots are asked.
        dropped: reason -> how many of the content gave no document.
        origin: what it was built from: packages with versions, or the corpus's digest.
    """

    test: tuple[Item, ...]
    examples: tuple[Item, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    origin: str = ""

    @property
    def digest(self) -> str:
        """Return the hash of all documents; scores of another one are of another task."""
        lines = [document_hash(item) for item in (*self.test, *self.examples)]
        return hashlib.sha256("\n".join([str(len(self.test)), *lines]).encode()).hexdigest()


def document_hash(item: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document as canonical JSON."""
    text = json.dumps(item, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def chance(documents: Sequence[Item]) -> float:
    """Return what guessing gives on multiple choice: the mean of one over the choices."""
    return sum(1 / len(item["choices"]) for item in documents) / len(documents)


def majority_share(documents: Sequence[Item]) -> float:
    """Return the share that whoever always gives the same best answer has right.

    Of multiple choice that is the most frequent place of the right answer, else its text.
    """
    answers = Counter(item.get("answer", item.get("target")) for item in documents)
    return answers.most_common(1)[0][1] / len(documents)


def checked(task: TaskSpec, built: Built) -> Built:
    """Return the documents, which make sense as the task that they are for.

    Raises:
        InputError: with the first problems, and how many there are.
    """
    problems = list(_problems(task, built))
    if problems:
        more = f" and {len(problems) - _TOLD} more problems" * (len(problems) > _TOLD)
        raise InputError(f"{task.name}: " + "\n".join(problems[:_TOLD]) + more)
    return built


def _problems(task: TaskSpec, built: Built) -> Iterator[str]:
    if len(built.examples) != task.examples:
        yield f"examples must be {task.examples}, got {len(built.examples)}."
    if not built.test:
        yield f"documents must be one at least, got none ({_dropped(built)})."
        return
    asked: dict[Any, str] = {}
    for item in (*built.test, *built.examples):
        name = item["id"]
        for problem in _item_problems(task.kind, item):
            yield f"document {name} {problem}"
        key = (item["prompt"], *item.get("choices", (item.get("target"),)))
        if key in asked:
            yield f"document {name} must ask something of its own, got what {asked[key]} asks."
        asked[key] = name
    names = Counter(item["id"] for item in (*built.test, *built.examples))
    yield from (f"document {name} must stand once." for name, n in names.items() if n > 1)
    if task.kind == "multiple_choice":
        found = chance(built.test)
        if task.chance is None or abs(found - task.chance) > CHANCE_DIGITS:
            yield f"chance must be that of the documents, {found:.4f}, got {task.chance}."


def _item_problems(kind: Kind, item: Item) -> Iterator[str]:
    if not item["prompt"].strip():
        yield "must have text before the answer, got none."
    if kind != "multiple_choice":
        if not item["target"].strip():
            yield "must have an answer, got an empty one."
        return
    choices, answer = item["choices"], item["answer"]
    if not 0 <= answer < len(choices):
        yield f"must have its answer among {len(choices)} choices, got number {answer}."
        return
    for number, choice in enumerate(choices):
        if not choice.strip():
            yield f"must have no empty choice, got one at {number}."
        elif number != answer and alike(choice, choices[answer]):
            yield f"must have wrong choices that differ from the right one, got {choice[:60]!r}."
        elif any(alike(choice, other) for other in choices[:number]):
            yield f"must have each choice once, got {choice[:60]!r} again."


def alike(one: str, other: str) -> bool:
    """Say whether two texts differ in white space and case only."""
    return one.split() == other.split() or one.casefold().split() == other.casefold().split()


def _dropped(built: Built) -> str:
    told = ", ".join(f"{n} {reason}" for reason, n in built.dropped.items())
    return f"left out: {told}" if told else "there was no content"
