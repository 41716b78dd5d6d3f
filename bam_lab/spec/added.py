"""Domains of the user's own, put beside those of an ablation's files."""

import math
from collections.abc import Iterable, Mapping

from pydantic import ValidationError

from bam_lab.spec.corpus import CorpusSpec, DomainSource
from bam_lab.spec.data import DataSpec, scaled
from bam_lab.spec.messages import describe
from bam_lab.spec.parts import part_of
from bam_lab.spec.recipe import SEED_MODEL, RecipeSpec


def added_problems(corpus: CorpusSpec, added: Mapping[str, DomainSource]) -> list[str]:
    """Return why domains cannot be added to a corpus."""
    problems = []
    for name, source in added.items():
        place = f"--domain {name}"
        if name in corpus.domains:
            problems.append(f"{place}: must be new to the corpus, which has {name!r}. Rename it.")
        elif name == SEED_MODEL or part_of(name):
            problems.append(f"{place}: must not be the name of another dense model. Rename it.")
        elif source.hold_out.whole:
            problems.append(f"{place}: must have text to train on, is held out as a whole.")
    whole = joined(corpus, added).model_dump(by_alias=True)
    try:
        CorpusSpec.model_validate(whole)
    except ValidationError as error:
        texts = (describe(item, item["loc"], CorpusSpec) for item in error.errors())
        problems += [f"--domain {', '.join(added)}: {text}" for text in texts]
    return problems


def with_domains(
    recipe: RecipeSpec,
    corpus: CorpusSpec,
    data: Mapping[str, DataSpec],
    added: Mapping[str, DomainSource],
) -> tuple[RecipeSpec, CorpusSpec, dict[str, DataSpec]]:
    """Return recipe, corpus and what arms read with each domain added to all three.

    It is branched, has an expert in the recipe's mixture, and the mean weight in every mix of the
    mixture phase.
    """
    names = tuple(added)
    expert = recipe.expert.model_copy(update={"domains": (*recipe.expert.domains, *names)})
    mixture = recipe.mixture.model_copy(
        update={
            "experts": (*recipe.mixture.experts, *names),
            "mix": _mixed(recipe.mixture.mix, names),
        }
    )
    changed = {
        arm: own if own.mix is None else own.model_copy(update={"mix": _mixed(own.mix, names)})
        for arm, own in data.items()
    }
    recipe = recipe.model_copy(update={"expert": expert, "mixture": mixture})
    return recipe, joined(corpus, added), changed


def joined(corpus: CorpusSpec, added: Mapping[str, DomainSource]) -> CorpusSpec:
    """Return the corpus with domains beside its own, unchecked."""
    return corpus.model_copy(update={"domains": {**corpus.domains, **added}})


def _mixed(mix: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    mean = math.fsum(mix.values()) / len(mix)
    return scaled({**mix, **dict.fromkeys(names, mean)})
