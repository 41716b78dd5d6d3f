"""Names of parts of a domain: `math.1of2` is every second document of `math`, from the first on."""

import re
from collections.abc import Collection
from typing import NamedTuple


class Part(NamedTuple):
    """Name documents `number - 1`, `number - 1 + parts`, ... of a domain, counted from 0."""

    domain: str
    number: int
    parts: int


def part_of(name: str) -> Part | None:
    """Return what part of a domain a branch's name means; None for a whole domain."""
    found = re.fullmatch(r"(.+)\.([1-9][0-9]*)of([1-9][0-9]*)", name)
    if found is None:
        return None
    part = Part(found[1], int(found[2]), int(found[3]))
    return part if part.number <= part.parts and part.parts > 1 else None


def domain_of(name: str) -> str:
    """Return the domain that a branch is trained on, in part or whole."""
    part = part_of(name)
    return name if part is None else part.domain


def is_known(name: str, domains: Collection[str]) -> bool:
    """Return whether a branch can be made: of one of `domains`, or of a part of one."""
    return name in domains or domain_of(name) in {domain_of(domain) for domain in domains}
