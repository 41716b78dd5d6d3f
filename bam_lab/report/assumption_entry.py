"""One line of the assumption register, and how it is read from a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bam_lab.report.evidence import Evidence
from bam_lab.report.settings import shown

Basis = Literal["stated", "derived", "ours"]


@dataclass(frozen=True)
class Assumption:
    """Hold one line of the register."""

    subject: str
    value: str
    basis: Basis
    place: str
    why: str


@dataclass(frozen=True)
class Entry:
    """Say how one line is read from a run.

    Attributes:
        stated: the paper's value, where it is one value.
        stated_at: scale -> the paper's value there, where it states one a scale.
    """

    subject: str
    read: Callable[[Evidence], str]
    basis: Basis
    place: str
    why: str = ""
    stated: str = ""
    stated_at: Mapping[str, str] = field(default_factory=dict)

    def line(self, evidence: Evidence) -> Assumption:
        """Return the line of one run; a value other than the stated one is ours."""
        value = self.read(evidence)
        stated = self.stated_at.get(evidence.scale, self.stated)
        if stated and value != stated:
            why = f"departs from the stated {stated}"
            return Assumption(self.subject, value, "ours", self.place, why)
        if evidence.scale in self.stated_at:
            return Assumption(self.subject, value, "stated", self.place, "")
        return Assumption(self.subject, value, self.basis, self.place, self.why)


def per_arm(evidence: Evidence, read: Callable[[dict[str, Any]], Any]) -> str:
    """Return one value where all arms agree, else each value with its arms."""
    found: dict[str, list[str]] = {}
    for arm in evidence.arms:
        value = read(arm.method)
        if value is not ABSENT:
            found.setdefault("none" if value is None else f"{value}", []).append(shown(arm.name))
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{value} ({', '.join(arms)})" for value, arms in found.items())


ABSENT = object()


def get(method: dict[str, Any], *path: str) -> Any:
    """Return what stands at `path` of an arm's method; `ABSENT` where it has no such setting."""
    value: Any = method
    for key in path:
        if value is None:
            return None
        if key not in value:
            return ABSENT
        value = value[key]
    return value
