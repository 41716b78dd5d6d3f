"""Published claims as data: what was said, where, and the tests that would bear it out.

A claim holds when all its tests hold. Tests name arms by role; `roles` lists the arm names that may
fill a role, the first that the ablation has; one that is not listed is an arm of that name.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bam_lab.spec.base import Name, SchemaVersion, Spec
from bam_lab.spec.claim_tests import Test

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
    """Hold one claim."""

    text: str
    source: ClaimSource
    printed: Printed
    roles: dict[Name, tuple[Name, ...]] = Field(default_factory=dict)
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
