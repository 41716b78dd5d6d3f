"""The files that an ablation names: recipe and scale, and the scale's model and corpus."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from bam_lab import resources
from bam_lab.errors import SpecError
from bam_lab.spec import overrides as override
from bam_lab.spec.corpus import CorpusSpec
from bam_lab.spec.messages import nearest
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.reader import Document, load, validate
from bam_lab.spec.recipe import RecipeSpec
from bam_lab.spec.scale import ScaleSpec

Model = TypeVar("Model", bound=BaseModel)
Changes = Mapping[str, Sequence[override.Change]]
"""Kind of file -> what is written into it."""


@dataclass(frozen=True)
class Files:
    """Hold each file and what it says; None where it cannot be read."""

    recipe_doc: Document | None
    recipe: RecipeSpec | None
    scale_name: str
    scale_doc: Document | None
    scale: ScaleSpec | None
    model_doc: Document | None
    model: ModelSpec | None
    corpus_doc: Document | None
    corpus: CorpusSpec | None


def read_files(
    document: Document, scale: str | None, changes: Changes, problems: list[str]
) -> Files:
    """Read the files that an ablation names, `scale` in place of its own; problems are added."""
    named = document.data.get("scale") if scale is None else scale
    if scale is not None:
        told = {**document.overridden, ("scale",): f"--scale {scale}"}
        document = replace(document, overridden=told)
    recipe_doc = _config(document, "recipe", document.data.get("recipe"), changes, problems)
    recipe = checked(recipe_doc, RecipeSpec, problems)
    scale_doc = _config(document, "scale", named, changes, problems)
    sizes = checked(scale_doc, ScaleSpec, problems)
    model_doc = corpus_doc = None
    if scale_doc is not None:
        model_doc = _config(scale_doc, "model", scale_doc.data.get("model"), changes, problems)
        corpus_doc = _config(scale_doc, "corpus", scale_doc.data.get("corpus"), changes, problems)
    return Files(
        recipe_doc=recipe_doc,
        recipe=recipe,
        scale_name=str(named),
        scale_doc=scale_doc,
        scale=sizes,
        model_doc=model_doc,
        model=checked(model_doc, ModelSpec, problems),
        corpus_doc=corpus_doc,
        corpus=checked(corpus_doc, CorpusSpec, problems),
    )


def checked(document: Document | None, model: type[Model], problems: list[str]) -> Model | None:
    """Return what a file says, or None; problems are added."""
    if document is None:
        return None
    spec, found = validate(document, model)
    problems += found
    return spec


def _config(
    parent: Document,
    kind: str,
    name: object,
    changes: Changes,
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
        known = [found.stem for found in folder.glob("*.yaml")]
        if name not in known:
            hint = nearest(name, known)
            problems.append(
                parent.problem((kind,), f"must name a file of configs/{kind}, got {name!r}. {hint}")
            )
            return None
    try:
        return override.apply(load(path), changes.get(kind, ()))
    except SpecError as error:
        problems += error.problems
        return None
