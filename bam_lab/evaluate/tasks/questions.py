"""Documents of OpenAI's evals: multiple-choice questions as one chat message, with their answer.

The sets write answers as `A. text`, `A: text` or `(A) text`, each on a line of its own behind the
question, and the right one as a letter, a line, or a sentence that ends in a letter.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from bam_lab.errors import InputError
from bam_lab.evaluate.tasks.documents import Built, Item, alike
from bam_lab.spec.tasks import Questions

LETTERS = "ABCDEFGHIJ"

_OPTION = re.compile(r"^[ \t]*(?:\(([A-J])\)|([A-J])[.:)])[ \t]*", re.MULTILINE)
_RIGHT = re.compile(r"^\s*\(?([A-J])\)?(?=[.:)\s]|$)|answer is \(?([A-J])\)?")
_OF_OTHERS = re.compile(
    r"\b(all|none|both|any|either|neither)\b.*"
    r"\b(above|other options|these|[A-D] (and|or|nor) [A-D])\b",
    re.IGNORECASE,
)


def questions(rows: Iterable[tuple[str, Any]], spec: Questions) -> Built:
    """Return documents of rows, (place, row) each; a question that came before is left out.

    Raises:
        InputError: a row is no question with `choices` answers, of which one is right.
    """
    found: list[Item] = []
    dropped: Counter[str] = Counter()
    seen: set[str] = set()
    for place, row in rows:
        try:
            text, right = _message(row), _right(row["ideal"])
            question, choices = split_options(text, spec.choices)
            answer = LETTERS.index(right)
            choices[answer]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InputError(
                f"{place} must be a question with {spec.choices} answers, one of them right, got "
                f"{type(error).__name__}: {error}. Is it another file or version?"
            ) from error
        key = " ".join(text.split())
        if key in seen:
            dropped["asked before"] += 1
        elif any(alike(a, b) for i, a in enumerate(choices) for b in choices[:i]):
            dropped["with answers that are alike"] += 1
        elif not all(choices):
            dropped["with an empty answer"] += 1
        elif any(len(choice) > spec.answer_characters for choice in choices):
            dropped["with a long answer"] += 1
        elif spec.scored == "answer" and any(_OF_OTHERS.search(choice) for choice in choices):
            dropped["with answers that speak of others"] += 1
        else:
            found.append(_item(place, question, choices, answer, spec))
        seen.add(key)
    return Built(tuple(found), (), dict(dropped))


def split_options(text: str, count: int) -> tuple[str, list[str]]:
    """Return a question and its answers A, B, ... of a message that holds both.

    Raises:
        ValueError: the last `count` options are not lettered A, B, ... in order.
    """
    text = re.sub(r"\s*Answer:\s*$", "", text)
    marks = list(_OPTION.finditer(text))[-count:]
    letters = "".join(mark[1] or mark[2] for mark in marks)
    if letters != LETTERS[:count]:
        raise ValueError(f"options must be {', '.join(LETTERS[:count])}, got {letters or 'none'}")
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    options = []
    for letter, mark, end in zip(letters, marks, ends, strict=True):
        # Some sets write the letter twice.
        option = re.sub(rf"^{letter}[.:)]\s*", "", text[mark.end() : end].strip())
        options.append(" ".join(option.split()))
    return text[: marks[0].start()].strip(), options


def _item(place: str, question: str, choices: list[str], answer: int, spec: Questions) -> Item:
    # Some sets run the passage into the question.
    lines = re.sub(r"(?<=\S)[ \t]*(?=\bQuestion: )", "\n", question)
    if spec.scored == "letter":
        options = [f"{letter}. {text}" for letter, text in zip(LETTERS, choices, strict=False)]
        lines, choices = "\n".join([lines, *options]), list(LETTERS[: len(choices)])
    opening = f"{spec.instruction.strip()}\n\n" if spec.instruction else ""
    return {
        "id": place,
        "source": place.partition("#")[0],
        "prompt": f"{opening}{lines}\nAnswer:",
        "choices": choices,
        "answer": answer,
    }


def _message(row: Any) -> str:
    text = row["input"][-1]["content"]
    if not isinstance(text, str) or not text.strip():
        raise ValueError("the last message must be text")
    return text


def _right(ideal: Any) -> str:
    first = ideal if isinstance(ideal, str) else ideal[0]
    found = _RIGHT.search(first)
    if found is None:
        raise ValueError(f"ideal must name a letter, got {first[:60]!r}")
    return found[1] or found[2]
