"""What happens: which phases, domains, experts and data mixes; no sizes."""

from pydantic import Field

from bam_lab.spec.base import Name, SchemaVersion, Share, Spec

SEED_MODEL = "seed_model"


class SeedPhase(Spec):
    """Train the seed model on `mix`: weights over domains that sum to 1."""

    mix: dict[Name, Share]


class ExpertPhase(Spec):
    """Branch one dense expert a domain, on its domain with `general_share` of general text."""

    domains: tuple[Name, ...]
    general_share: Share


class MixturePhase(Spec):
    """Train the mixture of `experts` (branch names, or `seed_model`) on `mix`."""

    experts: tuple[Name, ...]
    mix: dict[Name, Share]


class RecipeSpec(Spec):
    """Hold the road from a seed model to a mixture.

    Attributes:
        general: the domain that stands in for the papers' Common Crawl.
    """

    schema_version: SchemaVersion = Field(alias="schema")
    general: Name
    seed_model: SeedPhase
    expert: ExpertPhase
    mixture: MixturePhase
