"""Find an ablation by id, alias or path, and resolve it with every file that it names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

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
from bam_lab.spec.corpus import CorpusSpec, DomainSource, located
from bam_lab.spec.external import external_problems, read_external
from bam_lab.spec.messages import nearest
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.published_rules import meaning, published_problems
from bam_lab.spec.reader import Document, load, read, validate
from bam_lab.spec.recipe import RecipeSpec
from bam_lab.spec.resolved import ResolvedAblation as ResolvedAblation
from bam_lab.spec.resolved import joined, setting_problems
from bam_lab.spec.scale import ScaleSpec

Model = TypeVar("Model", bound=BaseModel)


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
        raise SpecError(f"{reference}: must be an ablation's id, alias or path. {hint}")
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
    expanded = [expand(asked.ablation(point)) for point in points]
    problems += [text for _, texts in expanded for text in texts]
    named = not problems  # every arm and every setting has its name
    under = [(point, arms) for point, (arms, _) in zip(points, expanded, strict=True)]
    children = [_resolve(asked, point, arms, problems) for point, arms in under]
    problems += setting_problems(document, children)
    found = [child for child in children if child is not None]
    whole = joined(found) if len(found) == len(children) else None
    if named:
        subject = subject_of([arms for _, arms in under], points, whole.domains if whole else ())
        problems += claim_problems(document, subject, known_claims())
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
    assert whole is not None
    return whole


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

    def ablation(self, point: Point) -> Document:
        """Return the ablation's own file under a setting."""
        if not point.name:
            return self.document
        return override.apply(self.document, self.under(point).get("ablation", ()))


def _resolve(
    asked: _Asked, point: Point, expanded: Expanded, problems: list[str]
) -> ResolvedAblation | None:
    """Return the ablation under one setting, or None; problems are added."""
    path, scale, by_file = asked.path, asked.scale, asked.under(point)
    document, before = expanded.document, len(problems)
    spec = _checked(document, AblationSpec, problems)
    arms, arm_problems = arms_of.resolve(document, expanded.inherited)
    data, data_problems = arms_of.resolve_data(document, expanded.inherited)
    problems += [*arm_problems, *data_problems]
    if spec is not None:
        problems += rules.ablation_problems(document, spec, path.stem)
        problems += match_rules.match_problems(document, spec, arms, expanded.bases)
        problems += rules.name_problems(document, spec, known_claims(), known_questions())
        problems += published_problems(document, spec)
    external, wrong = read_external(document, spec.report.external if spec else ())
    problems += wrong
    if scale is not None and "scale" in point.changes:
        text = f"must not be given with --scale {scale}, which would have no effect. Leave one out."
        problems.append(asked.document.problem(point.places["scale"], text))
    named = document.data.get("scale") if scale is None else scale
    recipe_doc = _config(document, "recipe", document.data.get("recipe"), by_file, problems)
    recipe = _checked(recipe_doc, RecipeSpec, problems)
    scale_doc = _config(document, "scale", named, by_file, problems)
    sizes = _checked(scale_doc, ScaleSpec, problems)
    if sizes:
        point, sizes = sized(point, sizes)
    model_doc = corpus_doc = None
    if scale_doc is not None:
        model_doc = _config(scale_doc, "model", scale_doc.data.get("model"), by_file, problems)
        corpus_doc = _config(scale_doc, "corpus", scale_doc.data.get("corpus"), by_file, problems)
    model = _checked(model_doc, ModelSpec, problems)
    corpus = _checked(corpus_doc, CorpusSpec, problems)
    if asked.added and recipe and corpus:
        if wrong := added_problems(corpus, asked.added):
            raise SpecError([*problems, *wrong])
        recipe, corpus, data = with_domains(recipe, corpus, data, asked.added)
    if model and model_doc:
        problems += rules.model_problems(model_doc, model)
        experts = recipe.mixture.experts if recipe else ()
        problems += rules.shape_problems(document, arms, model, experts)
    if recipe and recipe_doc:
        problems += rules.recipe_problems(recipe_doc, recipe)
        problems += rules.arm_problems(document, arms, recipe)
        problems += sharing_problems(document, point, arms, data, recipe)
        if corpus:
            problems += data_rules.domain_problems(recipe_doc, recipe, corpus)
            problems += external_problems(document, external, arms, corpus.domains)
            turned = spec.match.by if spec else ()
            solved = [arm for arm, base in expanded.bases.items() if base in turned]
            problems += rules.reading_problems(document, arms, data, recipe, corpus, solved)
    if sizes and scale_doc and model:
        problems += rules.scale_problems(scale_doc, sizes, model)
        if BUDGET not in point.axes:  # else `budget_problems` says it
            problems += rules.length_problems(scale_doc, sizes, model)
        if spec:
            problems += budget_problems(asked.document, point, spec, sizes, model)
    if sizes:
        problems += rules.batch_problems(document, arms, sizes)
    if len(problems) > before:
        return None
    assert spec and recipe and sizes and model and corpus and corpus_doc
    return ResolvedAblation(
        ablation=spec,
        path=path,
        recipe=recipe,
        scale=sizes,
        scale_name=str(named),
        model=model,
        corpus=located(corpus, Path(corpus_doc.file).parent),
        arms=arms,
        overrides=asked.overrides,
        data=data,
        added=tuple(asked.added),
        axes=expanded.axes,
        bases=expanded.bases,
        point=point,
        external=external,
    )


@cache
def known_claims() -> dict[str, Claim]:
    """Return the claims of the shared file, by id.

    Raises:
        SpecError: the file has problems.
    """
    return read(resources.folder("ablations") / "claims.yaml", ClaimsFile).claims


@cache
def known_questions() -> frozenset[str]:
    """Return the ids of the shared questions file."""
    return frozenset(read(resources.folder("ablations") / "answers.yaml", AnswersFile).questions)


def _checked(document: Document | None, model: type[Model], problems: list[str]) -> Model | None:
    if document is None:
        return None
    spec, found = validate(document, model)
    problems += found
    return spec


def _config(
    parent: Document,
    kind: str,
    name: object,
    changes: dict[str, list[override.Change]],
    problems: list[str],
) -> Document | None:
    """Load `configs/KIND/NAME.yaml`, or the path NAME beside the file that names it."""
    if not isinstance(name, str):
        return None  # the parent's own validation says so
    folder = resources.folder("configs") / kind
    if name.endswith(".yaml"):
        path = Path(parent.file).parent / name
    else:
        path = folder / f"{name}.yaml"
        if not path.is_file():
            hint = nearest(name, [found.stem for found in folder.glob("*.yaml")])
            problems.append(
                parent.problem((kind,), f"must name a file of configs/{kind}, got {name!r}. {hint}")
            )
            return None
    try:
        return override.apply(load(path), changes.get(kind, ()))
    except SpecError as error:
        problems += error.problems
        return None
