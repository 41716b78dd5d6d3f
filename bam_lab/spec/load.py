"""Find an ablation by id, alias or path, and resolve it with every file that it names."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from bam_lab import resources
from bam_lab.errors import SpecError
from bam_lab.spec import arms as arms_of
from bam_lab.spec import data_rules, match_rules, rules
from bam_lab.spec import overrides as override
from bam_lab.spec.ablation import AblationSpec
from bam_lab.spec.added import added_problems, with_domains
from bam_lab.spec.answers import AnswersFile
from bam_lab.spec.axes import Expanded, Point, expand, settings_of
from bam_lab.spec.budgets import BUDGET, budget_problems, sharing_problems, sized, with_budgets
from bam_lab.spec.claim_rules import claim_problems, subject_of
from bam_lab.spec.claims import Claim, ClaimsFile
from bam_lab.spec.corpus import DomainSource, located
from bam_lab.spec.data import DataSpec
from bam_lab.spec.evaluation_rules import evaluation_problems, length_problems
from bam_lab.spec.external import External, external_problems, read_external
from bam_lab.spec.files import Files, checked, read_files
from bam_lab.spec.messages import nearest
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.published_rules import meaning, published_problems
from bam_lab.spec.reader import Document, load, read, validate
from bam_lab.spec.resolved import ResolvedAblation, joined, setting_problems


def list_ablations() -> list[Path]:
    """Return every shipped ablation file, by id."""
    return sorted(resources.folder("ablations").glob("*/*.yaml"), key=lambda path: path.stem)


def find_ablation(reference: str) -> Path:
    """Return the file of an id, an alias or a path.

    Raises:
        SpecError: nothing has that name, or an alias could mean several.
    """
    if reference.endswith((".yaml", ".yml")) or "/" in reference:
        return Path(reference)
    paths = {path.stem: path for path in list_ablations()}
    if reference in paths:
        return paths[reference]
    aliases: dict[str, list[str]] = {}
    for path in paths.values():
        for alias in load(path).data.get("aliases") or []:
            aliases.setdefault(str(alias), []).append(path.stem)
    meant = aliases.get(reference, [])
    if len(meant) > 1:
        raise SpecError(
            f"{reference}: must mean one ablation, could be "
            f"{' or '.join(meaning(paths[name]) for name in meant)}. Name it."
        )
    if not meant:
        hint = nearest(reference, [*paths, *aliases])
        hint += "" if hint.startswith("Did") else " `bam-lab list` shows them."
        named = reference or "an empty name"
        raise SpecError(f"{named}: must be an ablation's id, alias or path. {hint}")
    return paths[meant[0]]


def load_ablation(
    reference: str,
    *,
    scale: str | None = None,
    overrides: Sequence[str] = (),
    added: Mapping[str, DomainSource] | None = None,
) -> ResolvedAblation:
    """Resolve an ablation.

    Args:
        reference: id, alias, or path of a file.
        scale: name of another scale; switches all sizes together.
        overrides: `dotted.path=value`; the first part may be recipe, scale, model or corpus.
        added: domains of the user's own: each is branched, has an expert in the recipe's mixture,
            and the mean weight in every mix of the mixture phase.

    Raises:
        SpecError: with every problem of every file at once.
    """
    found, problems = read_ablation(reference, scale=scale, overrides=overrides, added=added)
    if problems:
        raise SpecError(problems)
    assert found is not None
    return found


def read_ablation(
    reference: str,
    *,
    scale: str | None = None,
    overrides: Sequence[str] = (),
    added: Mapping[str, DomainSource] | None = None,
) -> tuple[ResolvedAblation | None, list[str]]:
    """Return an ablation and every problem of every file, so that all can be told at once.

    There is one beside problems too, where these leave its runs as they are: a claim that it cannot
    judge, too few steps. The match can be tried on it all the same.

    Raises:
        SpecError: nothing can be resolved; with what is known of why.
    """
    path, problems = find_ablation(reference), list[str]()
    written = override.by_file(overrides)
    document = load(path)
    fitted, wrong = override.fitted_to(document, scale)
    problems += wrong
    for changes in (fitted, written):
        document = override.apply(document, changes.get("ablation", ()))
    points, wrong = settings_of(document)
    problems += wrong
    points, wrong = with_budgets(document, points)
    problems += wrong
    asked = _Asked(document, path, scale, tuple(overrides), fitted, written, dict(added or {}))
    expanded = [expand(asked.ablation(point, problems)) for point in points]
    problems += [text for _, texts in expanded for text in texts]
    named = not problems  # every arm and every setting has its name
    under = [(point, arms) for point, (arms, _) in zip(points, expanded, strict=True)]
    beside = list[str]()
    children = [_resolve(asked, point, arms, problems, beside) for point, arms in under]
    problems += [*beside, *setting_problems(document, children)]
    found = [child for child in children if child is not None]
    whole = joined(found) if named and len(found) == len(children) else None
    if named:
        subject = subject_of([arms for _, arms in under], points, whole)
        spec = validate(document, AblationSpec)[0]
        own = spec.own_claims if spec else {}
        problems += claim_problems(document, subject, known_claims(), own)
    return whole, list(dict.fromkeys(problems))


@dataclass(frozen=True)
class _Asked:
    """Hold what was asked for: the file with `at:` and `--set` in it, and the options."""

    document: Document
    path: Path
    scale: str | None
    overrides: tuple[str, ...]
    fitted: dict[str, list[override.Change]]
    written: dict[str, list[override.Change]]
    added: dict[str, DomainSource]

    def under(self, point: Point) -> dict[str, list[override.Change]]:
        """Return what is written into each file under a setting; `--set` has the last word."""
        changes = {file: list(found) for file, found in self.fitted.items() if file != "ablation"}
        for path, value in point.changes.items():
            where = f"{self.document.where(point.places[path])} (setting {point.name})"
            override.place(changes, path, value, where)
        for file, asked in self.written.items():
            changes.setdefault(file, []).extend(asked)
        return changes

    def ablation(self, point: Point, problems: list[str]) -> Document:
        """Return the ablation's own file under a setting; problems are added."""
        if not point.name:
            return self.document
        try:
            return override.apply(self.document, self.under(point).get("ablation", ()))
        except SpecError as error:
            problems += error.problems
            return self.document


def _resolve(
    asked: _Asked, point: Point, expanded: Expanded, problems: list[str], beside: list[str]
) -> ResolvedAblation | None:
    """Return the ablation under one setting, or None; problems are added.

    To `beside` those that leave its runs as they are.
    """
    document, before = expanded.document, len(problems)
    own = _own(document, asked, expanded, problems, beside)
    if asked.scale is not None and "scale" in point.changes:
        text = f"must not be given with --scale {asked.scale}, which would have no effect."
        problems.append(
            asked.document.problem(point.places["scale"], f"{text} Leave one of the two out.")
        )
    files = read_files(document, asked.scale, asked.under(point), problems)
    if files.scale:
        point, sizes = sized(point, files.scale)
        files = replace(files, scale=sizes)
    if asked.added and files.recipe and files.corpus:
        if wrong := added_problems(files.corpus, asked.added):
            raise SpecError([*problems, *wrong])
        wider, corpus, data = with_domains(files.recipe, files.corpus, own.data, asked.added)
        own, files = replace(own, data=data), replace(files, recipe=wider, corpus=corpus)
    problems += _recipe_problems(document, point, own, files)
    problems += _size_problems(document, own, files)
    beside += _run_problems(document, asked.document, point, own, files)
    if len(problems) > before:
        return None
    spec, recipe, scale, model = own.spec, files.recipe, files.scale, files.model
    assert spec and recipe and scale and model and files.corpus and files.corpus_doc
    return ResolvedAblation(
        ablation=spec,
        path=asked.path,
        recipe=recipe,
        scale=scale,
        scale_name=files.scale_name,
        model=model,
        corpus=located(files.corpus, Path(files.corpus_doc.file).parent),
        arms=own.arms,
        overrides=asked.overrides,
        data=own.data,
        added=tuple(asked.added),
        axes=expanded.axes,
        bases=expanded.bases,
        point=point,
        external=own.external,
        document=document,
    )


@dataclass(frozen=True)
class _Own:
    """Hold what an ablation's own file says, as far as it is right.

    Attributes:
        solved: the arms that the match makes.
    """

    spec: AblationSpec | None
    arms: dict[str, MethodSpec]
    data: dict[str, DataSpec]
    solved: tuple[str, ...]
    external: tuple[External, ...]


def _own(
    document: Document, asked: _Asked, expanded: Expanded, problems: list[str], beside: list[str]
) -> _Own:
    spec = checked(document, AblationSpec, problems)
    arms, arm_problems = arms_of.resolve(document, expanded.inherited)
    data, data_problems = arms_of.resolve_data(document, expanded.inherited)
    problems += [*arm_problems, *data_problems]
    if spec is not None:
        problems += rules.baseline_problems(document, spec)
        problems += match_rules.match_problems(document, spec, arms, expanded.bases)
        beside += rules.ablation_problems(document, spec, asked.path.stem)
        known = known_claims(), known_questions(), known_ids()
        beside += rules.name_problems(document, spec, *known)
        beside += published_problems(document, spec, asked.scale or spec.scale)
    external, wrong = read_external(document, spec.report.external if spec else ())
    beside += wrong
    turned = spec.match.by if spec else {}
    solved = tuple(arm for arm, base in expanded.bases.items() if base in turned)
    return _Own(spec, arms, data, solved, external)


def _recipe_problems(document: Document, point: Point, own: _Own, files: Files) -> Iterator[str]:
    """Check the recipe, and arms, data and corpus against it."""
    recipe, corpus = files.recipe, files.corpus
    if recipe is None or files.recipe_doc is None:
        return
    yield from rules.recipe_problems(files.recipe_doc, recipe)
    yield from rules.arm_problems(document, own.arms, recipe)
    if own.spec:
        yield from rules.expert_row_problems(document, own.spec, own.arms, recipe)
    yield from sharing_problems(document, point, own.arms, own.data, recipe)
    if corpus is not None:
        yield from data_rules.domain_problems(files.recipe_doc, recipe, corpus)
        yield from data_rules.data_problems(document, own.arms, own.data, recipe, corpus)


def _run_problems(
    document: Document, file: Document, point: Point, own: _Own, files: Files
) -> Iterator[str]:
    """Check which runs there are: not twice the same, nor too short; `file` is as written."""
    recipe, corpus, model, scale = files.recipe, files.corpus, files.model, files.scale
    if own.spec:
        read = corpus.domains if corpus else ()
        yield from evaluation_problems(document, own.spec, own.arms.values(), read)
        if model:
            yield from length_problems(document, own.spec, model)
    if recipe and corpus:
        yield from external_problems(document, own.external, own.arms, corpus.domains)
        yield from rules.same_problems(document, own.arms, own.data, recipe, corpus, own.solved)
    if scale and files.scale_doc and model:
        if BUDGET not in point.axes:  # else `budget_problems` says it
            yield from rules.length_problems(files.scale_doc, scale, model)
        if own.spec:
            yield from budget_problems(file, point, own.spec, scale, model)


def _size_problems(document: Document, own: _Own, files: Files) -> Iterator[str]:
    """Check model and scale, and arms against them."""
    model, scale = files.model, files.scale
    if model and files.model_doc:
        yield from rules.model_problems(files.model_doc, model)
        experts = files.recipe.mixture.experts if files.recipe else ()
        yield from rules.shape_problems(document, own.arms, model, experts)
    if scale and files.scale_doc and model:
        yield from rules.scale_problems(files.scale_doc, scale, model)
    if scale:
        yield from rules.batch_problems(document, own.arms, scale)


@cache
def known_claims() -> dict[str, Claim]:
    """Return the claims of the shared file, by id.

    Raises:
        SpecError: the file has problems.
    """
    return read(resources.folder("ablations") / "claims.yaml", ClaimsFile).claims


@cache
def known_ids() -> frozenset[str]:
    """Return the ids of the shipped ablations."""
    return frozenset(path.stem for path in list_ablations())


@cache
def known_questions() -> frozenset[str]:
    """Return the ids of the shared questions file."""
    return frozenset(read(resources.folder("ablations") / "answers.yaml", AnswersFile).questions)
