"""Published claims as data: what was said, where, and the tests that would bear it out.

A claim holds when all its tests hold. Tests name arms by role; `roles` lists the arm names that may
fill a role, the first that the ablation has; one that is not listed is an arm of that name.
`ablations/claims.yaml` holds those of the papers; a spec may declare others (`own_claims`).
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bam_lab.spec.base import Name, SchemaVersion, Spec
from bam_lab.spec.claim_tests import Test

Fillers = Annotated[tuple[Name, ...], Field(min_length=1)]
Supports = Literal["yes", "in part", "no", "none printed"]


class ClaimSource(Spec):
    """Say who said it and where."""

    paper: str
    place: str


class Printed(Spec):
    """Hold what was printed for the claim.

    Attributes:
        table: file of `reports/published/`; empty when no table bears on it.
        column: the column of `table` that is its average, where it has no average of its own.
        and_tables: other files that the numbers are from.
        numbers: the numbers, in words for the report.
        supports: whether they support their own sentence, by sign and `delta`.
        note: where they do not.
    """

    table: str = ""
    column: str = ""
    and_tables: tuple[str, ...] = ()
    numbers: str
    supports: Supports
    note: str = ""


class Claim(Spec):
    """Hold one claim.

    Attributes:
        source: empty for one of one's own.
        printed: as if nothing was, for one of one's own.
    """

    text: str
    source: ClaimSource = ClaimSource(paper="", place="")
    printed: Printed = Printed(numbers="", supports="none printed")
    roles: dict[Name, Fillers] = Field(default_factory=dict)
    tests: Annotated[tuple[Test, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _roles_are_used(self) -> Self:
        used = {role.partition("@")[0] for test in self.tests for role in test.names}
        if unused := sorted(self.roles.keys() - used):
            raise ValueError(f"no test names the role {', '.join(unused)}; remove it")
        return self


class ClaimsFile(Spec):
    """Hold `ablations/claims.yaml`: claims by id."""

    schema_version: SchemaVersion = Field(alias="schema")
    claims: dict[str, Claim]

    @model_validator(mode="after")
    def _are_published(self) -> Self:
        for name, claim in self.claims.items():
            if lacks := {"source", "printed"} - claim.model_fields_set:
                raise ValueError(f"claim {name} must have {' and '.join(sorted(lacks))}")
        return self
