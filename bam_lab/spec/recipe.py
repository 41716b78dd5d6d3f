"""What happens: which phases, domains, experts and data mixes; no sizes."""

from typing import Self

from pydantic import Field, model_validator

from bam_lab.spec.base import Name, PositiveInt, SchemaVersion, Share, Spec
from bam_lab.spec.data import CHAIN_OF_A_POOL, DataSpec, Mix, Order

SEED_MODEL = "seed_model"


class SeedPhase(Spec):
    """Train the seed model on `mix`: weights over domains, scaled to sum to 1."""

    mix: Mix


class ExpertPhase(Spec):
    """Branch one dense expert a domain, on its domain with `general_share` of general text.

    Which domain is the general one, the corpus says.
    """

    domains: tuple[Name, ...]
    general_share: Share


class MixturePhase(Spec):
    """Train the mixture of `experts` (branch names, or `seed_model`) on `mix`, as above."""

    experts: tuple[Name, ...]
    mix: Mix


class RecipeSpec(Spec):
    """Hold the road from a seed model to a mixture.

    Attributes:
        general_repeats, order: of the branches and of the mixture phase, as in `DataSpec`.
        transfer: domains that no stage reads and every model is scored on, apart from the others.
    """

    schema_version: SchemaVersion = Field(alias="schema")
    seed_model: SeedPhase
    expert: ExpertPhase
    mixture: MixturePhase
    general_repeats: PositiveInt | None = None
    order: Order = "random"
    transfer: tuple[Name, ...] = ()

    @model_validator(mode="after")
    def _no_chain_of_a_pool(self) -> Self:
        if self.general_repeats is not None and self.order != "random":
            raise ValueError(CHAIN_OF_A_POOL)
        return self


def data_of(recipe: RecipeSpec, changes: DataSpec | None = None) -> DataSpec:
    """Return what the branches and the mixture phase read: the recipe's, but for `changes`."""
    whole = DataSpec(
        general_share=recipe.expert.general_share,
        general_repeats=recipe.general_repeats,
        mix=recipe.mixture.mix,
        order=recipe.order,
    )
    if changes is None:
        return whole
    return whole.model_copy(update={k: v for k, v in dict(changes).items() if v is not None})
