"""Published claims as data: what was said, where, and the tests that would bear it out.

A claim holds when all its tests hold. Tests name arms by role; `roles` lists the arm names that may
fill a role, the first that the ablation has; a role that is not listed is an arm of that name.
"""

import re
from typing import Annotated, Literal

from pydantic import Field

from bam_lab.spec.base import Name, SchemaVersion, Spec

Supports = Literal["yes", "in part", "no", "none printed"]

_WHERE = r"^(every|average|at least [1-9]\d* of [1-9]\d*|at most \d+ of [1-9]\d*)$"
Where = Annotated[str, Field(pattern=_WHERE)]


class BetterTest(Spec):
    """Claim that `arm` has a lower perplexity than `than`.

    Attributes:
        in_: over which domains: `every`, `average` (of the negative log-likelihood over domains),
            `at least k of n`, or `at most k of n`, which is the complement of at least k+1.
        match: where the claim was made under one matching only; other ablations are out of scope.
    """

    test: Literal["better"]
    arm: Name
    than: Name
    in_: Where = Field(alias="in")
    match: Literal["any", "tokens", "flops"] = "any"


class NoGainTest(Spec):
    """Claim that `arm` is not better than `over` by `delta` or more; fields as `BetterTest`."""

    test: Literal["no_gain"]
    arm: Name
    over: Name
    in_: Where = Field(alias="in")
    match: Literal["any", "tokens", "flops"] = "any"


class DiagonalTest(Spec):
    """Claim that each dense expert has the lowest perplexity of all dense models at home."""

    test: Literal["diagonal"]


class CostTest(Spec):
    """Claim that `arm` costs less than `than`, from the arithmetic of `cost/`: no error bars.

    Attributes:
        measure: `flops` (model training FLOPs a token) or `kv_bytes` (of one cached token).
        ratio: `less`, or `1/experts`: exactly the reciprocal of the number of experts.
    """

    test: Literal["cost"]
    arm: Name
    than: Name
    measure: Literal["flops", "kv_bytes"]
    ratio: Literal["less", "1/experts"]


Test = Annotated[BetterTest | NoGainTest | DiagonalTest | CostTest, Field(discriminator="test")]


class ClaimSource(Spec):
    """Say who said it and where."""

    paper: str
    place: str


class Printed(Spec):
    """Hold what was printed for the claim.

    Attributes:
        table: file of `reports/published/`; empty when no table bears on it.
        numbers: the numbers, in words for the report.
        supports: whether they support their own sentence, by sign and `delta`.
        note: where they do not.
    """

    table: str = ""
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


class ClaimsFile(Spec):
    """Hold `ablations/claims.yaml`: claims by id."""

    schema_version: SchemaVersion = Field(alias="schema")
    claims: dict[str, Claim]


def quorum(where: str) -> tuple[Literal["least", "most"], int, int] | None:
    """Return (`least` or `most`, k, n) of `at ... k of n`; None for `every` and `average`."""
    found = re.fullmatch(r"at (least|most) (\d+) of (\d+)", where)
    if found is None:
        return None
    return ("least" if found[1] == "least" else "most"), int(found[2]), int(found[3])
