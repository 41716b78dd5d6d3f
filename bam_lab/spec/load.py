"""Find an ablation by id, alias or path, and resolve it with every file that it names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from bam_lab import resources
from bam_lab.errors import SpecError
from bam_lab.spec import arms as arms_of
from bam_lab.spec import data_rules, rules
from bam_lab.spec import overrides as override
from bam_lab.spec.ablation import AblationSpec
from bam_lab.spec.added import added_problems, with_domains
from bam_lab.spec.corpus import CorpusSpec, DomainSource, located
from bam_lab.spec.data import DataSpec
from bam_lab.spec.messages import nearest
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.reader import Document, load, validate
from bam_lab.spec.recipe import RecipeSpec, data_of
from bam_lab.spec.scale import ScaleSpec

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class ResolvedAblation:
    """Hold one question with all that it names, checked.

    Attributes:
        arms: every arm's method, `common` laid under it.
        data: what arms read otherwise than the recipe says; an arm that is not in it, nothing.
        overrides: what the user changed by `--set`.
        added: domains of the user's own that the run has besides those of its files.
    """

    ablation: AblationSpec
    path: Path
    recipe: RecipeSpec
    scale: ScaleSpec
    scale_name: str
    model: ModelSpec
    corpus: CorpusSpec
    arms: dict[str, MethodSpec]
    overrides: tuple[str, ...] = ()
    data: dict[str, DataSpec] = field(default_factory=dict)
    added: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[str, ...]:
        """Return what differs from the files, as the options that changed it."""
        return (
            *(f"--set {text}" for text in self.overrides),
            *(f"--domain {name}" for name in self.added),
        )

    @property
    def overridden(self) -> bool:
        """Return whether the user changed the files' meaning.

        Such runs are marked and never enter a published report.
        """
        return bool(self.changes)

    def reads(self, arm: str) -> DataSpec:
        """Return what an arm's branches and mixture phase read, nothing left to the recipe."""
        return data_of(self.recipe, self.data.get(arm))


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
            f"{reference}: must mean one ablation, could be {', '.join(meant)}. Name it."
        )
    if not meant:
        hint = nearest(reference, [*paths, *aliases])
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
    path = find_ablation(reference)
    problems: list[str] = []
    by_file = override.by_file(overrides)
    document = override.apply(load(path), by_file.get("ablation", []))
    spec = _checked(document, AblationSpec, problems)
    arms, arm_problems = arms_of.resolve(document)
    data, data_problems = arms_of.resolve_data(document)
    problems += [*arm_problems, *data_problems]
    if spec is not None:
        problems += rules.ablation_problems(document, spec, path.stem)
        problems += rules.name_problems(document, spec, known_claims(), known_published())
    named = document.data.get("scale") if scale is None else scale
    recipe_doc = _config(document, "recipe", document.data.get("recipe"), by_file, problems)
    recipe = _checked(recipe_doc, RecipeSpec, problems)
    scale_doc = _config(document, "scale", named, by_file, problems)
    sizes = _checked(scale_doc, ScaleSpec, problems)
    model_doc = corpus_doc = None
    if scale_doc is not None:
        model_doc = _config(scale_doc, "model", scale_doc.data.get("model"), by_file, problems)
        corpus_doc = _config(scale_doc, "corpus", scale_doc.data.get("corpus"), by_file, problems)
    model = _checked(model_doc, ModelSpec, problems)
    corpus = _checked(corpus_doc, CorpusSpec, problems)
    if added and recipe and corpus:
        if wrong := added_problems(corpus, added):
            raise SpecError([*problems, *wrong])
        recipe, corpus, data = with_domains(recipe, corpus, data, added)
    if model and model_doc:
        problems += rules.model_problems(model_doc, model)
        experts = recipe.mixture.experts if recipe else ()
        problems += rules.shape_problems(document, arms, model, experts)
    if recipe and recipe_doc:
        problems += rules.recipe_problems(recipe_doc, recipe)
        problems += rules.arm_problems(document, arms, recipe)
        if corpus:
            problems += data_rules.domain_problems(recipe_doc, recipe, corpus)
            problems += rules.reading_problems(document, arms, data, recipe, corpus)
    if sizes and scale_doc and model:
        problems += rules.scale_problems(scale_doc, sizes, model)
    if sizes:
        problems += rules.batch_problems(document, arms, sizes)
    if problems:
        raise SpecError(problems)
    assert spec and recipe and sizes and model and corpus and corpus_doc
    corpus = located(corpus, Path(corpus_doc.file).parent)
    changed = tuple(overrides), data, tuple(added or ())
    return ResolvedAblation(spec, path, recipe, sizes, str(named), model, corpus, arms, *changed)


@cache
def known_claims() -> frozenset[str]:
    """Return the ids of the shared claims file."""
    return frozenset(load(resources.folder("ablations") / "claims.yaml").data["claims"])


def known_published() -> frozenset[str]:
    """Return the names of the published tables."""
    return frozenset(path.stem for path in resources.folder("published").glob("*.yaml"))


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
    overrides: dict[str, list[str]],
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
        return override.apply(load(path), overrides.get(kind, []))
    except SpecError as error:
        problems += error.problems
        return None
