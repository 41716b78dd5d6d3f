"""Know each kind of our YAML files, and find every problem of one."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bam_lab import resources
from bam_lab.cost.match import solve
from bam_lab.errors import InputError, SpecError
from bam_lab.run.graph import build_graph
from bam_lab.spec import rules
from bam_lab.spec.answers import AnswersFile, gap_problems
from bam_lab.spec.claims import ClaimsFile
from bam_lab.spec.corpus import CorpusSpec, DomainSource
from bam_lab.spec.load import read_ablation
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.published import PublishedTable, table_problems
from bam_lab.spec.reader import Document, load, validate
from bam_lab.spec.recipe import RecipeSpec
from bam_lab.spec.scale import ScaleSpec
from bam_lab.spec.task_files import suite_problems
from bam_lab.spec.task_rules import task_problems
from bam_lab.spec.tasks import HarnessFile, SuiteSpec, TaskSpec


def problems_of(path: Path, added: Mapping[str, DomainSource] | None = None) -> list[str]:
    """Return every problem of one file; of an ablation, with domains of the user's own in it."""
    try:
        document = load(path)
        kind = _kind(document)
        return list(_ablation(document, added) if kind.name == ABLATION else kind.check(document))
    except SpecError as error:
        return error.problems


def is_ablation(path: Path) -> bool:
    """Say whether a file is an ablation; not so if it cannot be read."""
    try:
        return _kind(load(path)).name == ABLATION
    except SpecError:
        return False


def _ablation(document: Document, added: Mapping[str, DomainSource] | None = None) -> Iterable[str]:
    """Return every problem of an ablation: at its own scale, and at those that it is fitted to."""
    # A reference with a folder is a file's path, whatever the file is called.
    path = str(Path(document.file).parent) + "/" + Path(document.file).name
    problems = _at_scale(path, None, added)
    for scale in _fitted(document):
        found = _at_scale(path, scale, added)
        problems += [f"{text} (at --scale {scale})" for text in found if text not in problems]
    return problems


def _at_scale(path: str, scale: str | None, added: Mapping[str, DomainSource] | None) -> list[str]:
    """Return the problems at one scale, those of the match and of the stages among them."""
    try:
        found, problems = read_ablation(path, scale=scale, added=added)
        if found and problems:
            _tried(lambda: solve(found), problems)
        elif found:
            _tried(lambda: build_graph(found, 1, None), problems)
    except SpecError as error:
        return error.problems
    return problems


def _tried(made: Callable[[], object], problems: list[str]) -> None:
    """Make something; what is wrong is added to the problems.

    Text or an encoder that is not on this machine is nothing that a file says wrong.
    """
    with suppress(InputError):
        try:
            made()
        except SpecError as error:
            problems += error.problems


def _fitted(document: Document) -> list[str]:
    """Return the scales, beside its own, that an ablation says something of."""
    report = document.data.get("report")
    published = report.get("published_at") if isinstance(report, dict) else None
    told = (document.data.get("at"), published)
    names = [name for part in told if isinstance(part, dict) for name in part]
    known = {path.stem for path in (resources.folder("configs") / "scale").glob("*.yaml")}
    own = document.data.get("scale")
    return [name for name in dict.fromkeys(names) if name in known and name != own]


def _model(document: Document) -> Iterable[str]:
    spec, problems = validate(document, ModelSpec)
    return [*problems, *(rules.model_problems(document, spec) if spec else ())]


def _recipe(document: Document) -> Iterable[str]:
    spec, problems = validate(document, RecipeSpec)
    return [*problems, *(rules.recipe_problems(document, spec) if spec else ())]


def _scale(document: Document) -> Iterable[str]:
    return validate(document, ScaleSpec)[1]


def _corpus(document: Document) -> Iterable[str]:
    return validate(document, CorpusSpec)[1]


def _published(document: Document) -> Iterable[str]:
    table, problems = validate(document, PublishedTable)
    stem = Path(document.file).stem
    return [*problems, *(table_problems(document, table, stem) if table else ())]


def _claims(document: Document) -> Iterable[str]:
    return validate(document, ClaimsFile)[1]


def _questions(document: Document) -> Iterable[str]:
    file, problems = validate(document, AnswersFile)
    return [*problems, *(gap_problems(document, file) if file else ())]


def _task(document: Document) -> Iterable[str]:
    task, problems = validate(document, TaskSpec)
    return [*problems, *(task_problems(document, task) if task else ())]


def _harness(document: Document) -> Iterable[str]:
    return validate(document, HarnessFile)[1]


def _suite(document: Document) -> Iterable[str]:
    suite, problems = validate(document, SuiteSpec)
    return [*problems, *(suite_problems(document, suite) if suite else ())]


@dataclass(frozen=True)
class _Kind:
    """Know a kind of file by its folder, or else by a key that no other kind has."""

    name: str
    folder: str
    key: str
    check: Callable[[Document], Iterable[str]]


ABLATION = "ablation"
_KINDS = (
    _Kind(ABLATION, "", "arms", _ablation),
    _Kind("scale", "scale", "phases", _scale),
    _Kind("recipe", "recipe", "expert", _recipe),
    _Kind("model", "model", "vocab_size", _model),
    _Kind("corpus", "corpus", "domains", _corpus),
    _Kind("published table", "published", "rows", _published),
    _Kind("claims", "", "claims", _claims),
    _Kind("questions", "", "questions", _questions),
    _Kind("task", "", "documents", _task),
    _Kind("tasks of lm-eval", "", "package", _harness),
    _Kind("suite", "suites", "tasks", _suite),
)


def _kind(document: Document) -> _Kind:
    folder = Path(document.file).resolve().parent.name
    for kind in _KINDS:
        if folder and kind.folder == folder:
            return kind
    for kind in _KINDS:
        if kind.key in document.data:
            return kind
    known = ", ".join(f"{kind.key} ({kind.name})" for kind in _KINDS)
    raise SpecError(
        f"{document.file}: the file must have a key that says what it is, got "
        f"{', '.join(map(str, document.data))}. One of: {known}."
    )
