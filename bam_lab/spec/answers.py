"""The questions of reviewers and authors by id, and answers that are no ablation."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from bam_lab.spec.base import SchemaVersion, Spec
from bam_lab.spec.reader import Document


class Question(Spec):
    """Hold one question.

    Attributes:
        of: whose work it is about; `authors` for what the papers leave open themselves.
        text: what is asked, in our words.
        answer: the command, setting or page that answers it where no ablation does, or why it is
            out of scope; beside ablations, what they do not say.
    """

    of: Literal["BAM", "BTX", "Lory", "authors"]
    text: Annotated[str, Field(min_length=1)]
    answer: str = ""


class AnswersFile(Spec):
    """Hold `ablations/answers.yaml`: questions by id."""

    schema_version: SchemaVersion = Field(alias="schema")
    questions: dict[Annotated[str, Field(pattern=r"^[A-D][1-9][0-9]?$")], Question]


def gap_problems(document: Document, file: AnswersFile) -> Iterator[str]:
    """Check that the ids of each letter count from 1 without a gap."""
    numbers: dict[str, list[int]] = {}
    for name in file.questions:
        numbers.setdefault(name[0], []).append(int(name[1:]))
    for letter, found in numbers.items():
        if found != list(range(1, len(found) + 1)):
            yield document.problem(
                ("questions",),
                f"must count {letter}1 to {letter}{len(found)} in order, got "
                f"{', '.join(f'{letter}{number}' for number in found)}.",
            )
