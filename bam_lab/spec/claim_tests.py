"""The tests that bear a claim out, each a comparison of arms in one measure, as data.

Tests name arms by role (`spec/claims.py`). In an ablation with settings a role stands for the arm
under each of them, `arm@setting` for one alone.
"""

import re
from collections.abc import Sequence
from itertools import combinations
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bam_lab.spec.base import PositiveFloat, PositiveInt, Spec
from bam_lab.spec.measures import BY_LENGTH, MEASURES, MeasureName

_NAME = r"[a-z0-9][a-z0-9_.-]*"
_LEAST = r"at least [1-9]\d* of [1-9]\d*"
_WHERE = rf"^(every|average|most|{_LEAST}|at most \d+ of [1-9]\d*|{_NAME})$"
Where = Annotated[str, Field(pattern=_WHERE)]
InSettings = Annotated[str, Field(pattern=rf"^(every|{_LEAST}|{_NAME})$")]
Role = Annotated[str, Field(pattern=rf"^{_NAME}(@{_NAME})?$", max_length=160)]
MatchedOn = Literal[
    "any",
    "tokens",
    "flops",
    "device-time",
    "params-total",
    "params-active",
    "inference-flops",
    "decode-throughput",
]


class Compared(Spec):
    """Hold what all tests between arms share.

    Attributes:
        in_: over which domains: `every`, `average` (of the negative log-likelihood over domains),
            `most` (more than half), `at least k of n`, `at most k of n` (the complement of at least
            k+1), or one domain.
        measure: what is compared (`spec/measures.py`).
        match: where the claim was made under one matching only; other ablations are out of scope.
        setting: `every` setting of the ablation, `at least k of n`, or one setting's name.
    """

    test: str
    in_: Where = Field(default="average", alias="in")
    measure: MeasureName = "perplexity"
    match: MatchedOn = "any"
    setting: InSettings = "every"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the roles that the test names."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _effective(self) -> Self:
        if "in_" in self.model_fields_set and not MEASURES[self.measure].domains:
            raise ValueError(f"`in` has no effect, {self.measure} has no domains; remove it")
        if self.in_.startswith("at most") and not isinstance(self, BetterTest | NoGainTest):
            raise ValueError("`at most` says something of better and no_gain alone")
        turned = isinstance(self, _TURNED)
        if turned and MEASURES[self.measure].better == "none":
            raise ValueError(f"no direction of {self.measure} is better; use ratio or monotone")
        of_experts = isinstance(self, AtHomeTest | BetterExpertsTest)
        trained = of_experts or isinstance(self, TrendTest | ReachesTest)
        if trained and self.measure != "perplexity":
            raise ValueError(f"`{self.test}` is about perplexity, got {self.measure}")
        if of_experts and "in_" in self.model_fields_set:
            raise ValueError("`in` has no effect, the domains are the experts' own; remove it")
        for where in (self.in_, self.setting):
            if asked := quorum(where):
                _possible(where, *asked)
        if name := itself(self, self.names):
            raise ValueError(f"{name} is compared with itself; name another arm")
        bound = ["@" in role for role in self.names]
        if any(bound) and not all(bound):
            raise ValueError("all roles must be ARM@SETTING, or none")
        if any(bound) and "setting" in self.model_fields_set:
            raise ValueError("`setting` has no effect where roles name theirs; remove it")
        return self


class BetterTest(Compared):
    """Claim that `arm` is better than `than` by the margin or more."""

    test: Literal["better"]
    arm: Role
    than: Role

    @property
    def names(self) -> tuple[str, ...]:
        """Return the roles that the test names."""
        return self.arm, self.than


class NoGainTest(Compared):
    """Claim that `arm` is not better than `over` by the margin or more."""

    test: Literal["no_gain"]
    arm: Role
    over: Role

    @property
    def names(self) -> tuple[str, ...]:
        """Return the roles that the test names."""
        return self.arm, self.over


class EqualTest(Compared):
    """Claim that two arms differ by less than a margin (two one-sided tests).

    Attributes:
        within: the margin in percent, or in the measure's own unit where it has a margin of its
            own; left out, it is the margin that holds for all.
    """

    test: Literal["equal"]
    arm: Role
    to: Role
    within: PositiveFloat | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the roles that the test names."""
        return self.arm, self.to


class RatioTest(Compared):
    """Claim that the measure of `arm` over that of `than` lies within one bound.

    Attributes:
        at_most_as: the bound is the ratio of the two arms in this measure of arithmetic.
        within: the ratio lies within 1/(1 + `within`) and 1 + `within`.
    """

    test: Literal["ratio"]
    arm: Role
    than: Role
    within: PositiveFloat | None = None
    at_most: PositiveFloat | None = None
    at_least: PositiveFloat | None = None
    at_most_as: MeasureName | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the roles that the test names."""
        return self.arm, self.than

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        bounds = (self.within, self.at_most, self.at_least, self.at_most_as)
        if sum(bound is not None for bound in bounds) != 1:
            raise ValueError("one of within, at_most, at_least and at_most_as must stand alone")
        if self.at_most_as is not None and MEASURES[self.at_most_as].source != "costs":
            raise ValueError(f"{self.at_most_as} is no arithmetic; inference_flops is")
        if MEASURES[self.measure].margin is not None:
            raise ValueError(f"differences of {self.measure} are not ratios; use another test")
        return self


class MonotoneTest(Compared):
    """Claim that the measure falls or rises with an axis.

    The last value differs from the first by the margin or more in that direction, and no step goes
    the other way by the margin or more.

    Attributes:
        arm: an arm with `over:`, by its name in the file; or any arm, where `axis` is one of the
            settings.
        axis: an axis of the arm or of the settings; `setting` for the settings as written.
    """

    test: Literal["monotone"]
    arm: Role
    axis: str
    direction: Literal["falling", "rising"]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the roles that the test names."""
        return (self.arm,)


class OrderTest(Compared):
    """Claim that each of `arms` is better than the next by the margin or more."""

    test: Literal["order"]
    arms: Annotated[tuple[Role, ...], Field(min_length=2)]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the roles that the test names."""
        return self.arms


class InteractionTest(Compared):
    """Claim that the first arm of `gap` gains more on its second than the first of `than` on its.

    A difference of differences: (a - b) - (c - d) is better than zero by the margin or more.
    """

    test: Literal["interaction"]
    gap: Annotated[tuple[Role, ...], Field(min_length=2, max_length=2)]
    than: Annotated[tuple[Role, ...], Field(min_length=2, max_length=2)]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the roles that the test names."""
        return *self.gap, *self.than


class TrendTest(Compared):
    """Claim that the gain of the first arm of `gap` on the second grows or shrinks in training.

    By validation losses at equal tokens: after a tenth of the mixture phase, the last third of the
    rest against its first third. Where the ablation has budgets, by the last budget against the
    first, each with its own decay.
    """

    test: Literal["trend"]
    gap: Annotated[tuple[Role, ...], Field(min_length=2, max_length=2)]
    direction: Literal["growing", "shrinking"]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the roles that the test names."""
        return self.gap


class ReachesTest(Compared):
    """Claim that `arm` is at the final validation loss of `target` after a share of its cost.

    Attributes:
        share: of the tokens or model FLOPs of the mixture phase of `target`.
    """

    test: Literal["reaches"]
    arm: Role
    target: Role
    share: PositiveFloat
    of: Literal["tokens", "flops"]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the roles that the test names."""
        return self.arm, self.target


class WidensTest(Compared):
    """Claim that the lead of `arm` on `than` is larger at the longest prompts than at the shortest.

    Of measures whose places are lengths.
    """

    test: Literal["widens"]
    arm: Role
    than: Role

    @property
    def names(self) -> tuple[str, ...]:
        """Return the roles that the test names."""
        return self.arm, self.than

    @model_validator(mode="after")
    def _has_lengths(self) -> Self:
        if self.measure not in BY_LENGTH:
            raise ValueError(f"{self.measure} has no lengths; {', '.join(BY_LENGTH)} have")
        if "in_" in self.model_fields_set:
            raise ValueError("`in` has no effect, the longest is compared with the shortest")
        return self


class BroadTest(Compared):
    """Claim that `arm` is better than `than` on tasks also without those on which it gains most.

    Attributes:
        without: how many tasks are left out; which ones, the same data say, which makes the test
            stricter, never laxer.
    """

    test: Literal["broad"]
    arm: Role
    than: Role
    measure: Literal["accuracy_by_task"] = "accuracy_by_task"
    without: PositiveInt

    @property
    def names(self) -> tuple[str, ...]:
        """Return the roles that the test names."""
        return self.arm, self.than

    @model_validator(mode="after")
    def _average(self) -> Self:
        if "in_" in self.model_fields_set:
            raise ValueError("`in` has no effect, the average over tasks is compared; remove it")
        return self


class AboveChanceTest(Compared):
    """Claim that `arm` answers more than guessing does, task by task (exact binomial tests)."""

    test: Literal["above_chance"]
    arm: Role
    measure: Literal["accuracy_by_task", "needle_accuracy"] = "accuracy_by_task"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the roles that the test names."""
        return (self.arm,)


class AtHomeTest(Compared):
    """Claim that `arm` is better than each of its dense experts in the expert's own domain."""

    test: Literal["at_home"]
    arm: Role

    @property
    def names(self) -> tuple[str, ...]:
        """Return the roles that the test names."""
        return (self.arm,)


class BetterExpertsTest(Compared):
    """Claim that the dense experts behind `arm` are better than those behind `than`, one by one.

    Attributes:
        text: each on its own domain, or on general text.
    """

    test: Literal["better_experts"]
    arm: Role
    than: Role
    text: Literal["own", "general"]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the roles that the test names."""
        return self.arm, self.than


class DiagonalTest(Spec):
    """Claim that each dense expert is the best of all dense models at home.

    Attributes:
        measure: perplexity, or accuracy on the tasks of the domain.
    """

    test: Literal["diagonal"]
    measure: Literal["perplexity", "task_accuracy"] = "perplexity"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the roles that the test names."""
        return ()


class CostTest(Spec):
    """Claim that `arm` costs less than `than`, from the arithmetic of `cost/`: no error bars.

    Attributes:
        ratio: `less`, or `1/experts`: exactly the reciprocal of the number of experts.
    """

    test: Literal["cost"]
    arm: Role
    than: Role
    measure: MeasureName
    ratio: Literal["less", "1/experts"]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the roles that the test names."""
        return self.arm, self.than

    @model_validator(mode="after")
    def _exact(self) -> Self:
        if MEASURES[self.measure].source != "costs":
            raise ValueError(f"{self.measure} has error bars; use better or ratio")
        if name := itself(self, self.names):
            raise ValueError(f"{name} is compared with itself; name another arm")
        return self


Test = Annotated[
    BetterTest
    | NoGainTest
    | EqualTest
    | RatioTest
    | MonotoneTest
    | OrderTest
    | InteractionTest
    | TrendTest
    | ReachesTest
    | WidensTest
    | BroadTest
    | AboveChanceTest
    | AtHomeTest
    | BetterExpertsTest
    | DiagonalTest
    | CostTest,
    Field(discriminator="test"),
]


_TURNED = (BetterTest, NoGainTest, OrderTest, InteractionTest, WidensTest)
"""Tests that say which direction is better."""


def quorum(where: str) -> tuple[Literal["least", "most"], int, int] | None:
    """Return (`least` or `most`, k, n) of `at ... k of n`; None for all else."""
    found = re.fullmatch(r"at (least|most) (\d+) of (\d+)", where)
    if found is None:
        return None
    return ("least" if found[1] == "least" else "most"), int(found[2]), int(found[3])


def _possible(where: str, kind: Literal["least", "most"], wanted: int, count: int) -> None:
    """See that `at ... k of n` can be, and can fail."""
    if wanted > count or (kind == "most" and wanted == count):
        raise ValueError(f"`{where}` {'cannot fail' if kind == 'most' else 'cannot be'}")


def itself(test: Spec, arms: Sequence[str]) -> str:
    """Return the arm that a test compares with itself, `arms` in its roles; empty for none."""
    gaps = [tuple(arms[:2]), tuple(arms[2:])] if isinstance(test, InteractionTest) else [arms]
    for gap in gaps:
        for one, other in combinations(gap, 2):
            if one == other:
                return one
    same = len(gaps) == 2 and gaps[0] == gaps[1]
    return " against ".join(gaps[0]) if same else ""


def wanted_of(where: str, count: int) -> int:
    """Return how many of `count` comparisons a claim wants, but for `at most`."""
    asked = quorum(where)
    if asked is not None:
        return asked[1]
    return count // 2 + 1 if where == "most" else count
