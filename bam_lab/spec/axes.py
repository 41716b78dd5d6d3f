"""Axes: an arm or a setting that stands for several, one for each combination of values.

    lory: {method: lory, over: {segment_len: [16, 32], num_experts: {few: 4, many: 16}}}

is `lory-16-few`, `lory-16-many`, `lory-32-few`, `lory-32-many`. An axis is a dotted path with a
list of values, each its own name, or with a mapping from names to values. The axis `case` has names
for several paths at once, so a comparison that changes one thing at a time is one case a change.
Settings are overrides under which every arm is trained: named, or the points of axes.
"""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, TypeVar

from bam_lab.spec.base import NAME
from bam_lab.spec.messages import Loc, nearest, show
from bam_lab.spec.overrides import no_effect, overwritten
from bam_lab.spec.reader import Document

OVER, CASE, SETTING = "over", "case", "setting"
PARTS = ("arms", "common", "model", "recipe", "scale")
"""What a setting may change; not the corpus, on whose held-out text all are compared."""
MOST_POINTS = 256
"""Combinations of one arm's axes, or of the settings': more is a slip, and no machine trains it."""

Scalar = str | int | float | bool
Place = TypeVar("Place")


@dataclass(frozen=True)
class Point:
    """Hold one combination of values.

    Attributes:
        name: the values' names, joined; empty for the one point of no axes.
        axes: axis -> value; the name of a case, and of a value that is no scalar.
        changes: dotted path -> value.
        places: dotted path -> where the file says it.
    """

    name: str = ""
    axes: dict[str, Scalar] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Loc] = field(default_factory=dict)


@dataclass(frozen=True)
class Expanded:
    """Hold a document whose arms have no axes any more.

    Attributes:
        axes: arm -> {axis: value}.
        bases: arm -> its name in the file.
        inherited: keys of `common` that the value of an axis was written into.
    """

    document: Document
    axes: dict[str, dict[str, Scalar]]
    bases: dict[str, str]
    inherited: frozenset[str]


def settings_of(document: Document) -> tuple[tuple[Point, ...], list[str]]:
    """Return the settings of an ablation, one without a name where it has none; and problems."""
    if "settings" not in document.data:
        return (Point(),), []
    raw, problems = document.data["settings"], list[str]()
    if not isinstance(raw, dict):
        text = f"must be a mapping, got {show(raw)}. Name each setting."
        return (Point(),), [document.problem(("settings",), text)]
    if OVER in raw:
        found, problems = points(document, ("settings", OVER), raw[OVER])
        for other in raw.keys() - {OVER}:
            text = "must not stand beside `over`. Make it a case of an axis, or write `over` out."
            problems.append(document.problem(("settings", other), text))
    else:
        found = list(_named(document, raw, problems))
    if len(found) < 2 and not problems:
        count = "one" if found else "none"
        text = f"must hold two settings or more, got {count}. Write changes into the ablation."
        problems.append(document.problem(("settings",), text))
    for point in found:
        problems += _setting_problems(document, point)
    return tuple(found) or (Point(),), problems


def _named(document: Document, raw: dict[str, Any], problems: list[str]) -> Iterator[Point]:
    for name, changes in raw.items():
        loc: Loc = ("settings", name)
        if wrong := _name_problem(name):
            problems.append(document.problem(loc, wrong))
        if not isinstance(changes, dict):
            text = f"must be a mapping from dotted paths to values, got {show(changes)}."
            problems.append(document.problem(loc, text))
            continue
        places = {path: (*loc, path) for path in changes}
        yield Point(name, {SETTING: name}, dict(changes), places)


def _setting_problems(document: Document, point: Point) -> Iterator[str]:
    for path, later in overwritten(list(point.changes)):
        yield document.problem(point.places[path], no_effect(later))
    arms = document.data.get("arms")
    for path, loc in point.places.items():
        keys = path.split(".")
        if keys[0] not in PARTS:
            known = f"One of: {', '.join(PARTS)}."
            yield document.problem(loc, f"must change a part that settings can change. {known}")
        elif keys[0] == "arms" and isinstance(arms, dict) and len(keys) > 1 and keys[1] not in arms:
            yield document.problem(
                loc, f"must change an arm of the file, got {keys[1]!r}. {nearest(keys[1], arms)}"
            )


def points(document: Document, loc: Loc, raw: Any) -> tuple[list[Point], list[str]]:
    """Return every combination of the axes that stand at `loc`, in the order written."""
    if not isinstance(raw, dict) or not raw:
        text = "must be a mapping from dotted paths to values. Name an axis, or remove it."
        return [], [document.problem(loc, text)]
    problems: list[str] = []
    axes = [_axis(document, (*loc, axis), axis, raw[axis], problems) for axis in raw]
    if (count := prod(map(len, axes))) > MOST_POINTS:
        text = f"must give at most {MOST_POINTS} combinations, got {count:,}. Take values out."
        return [], [*problems, document.problem(loc, text)]
    found = [_joined(combination) for combination in product(*axes)]
    for one, other in ((a, b) for a in axes for b in axes if a is not b):
        for path in {p for q in one for p in q.changes} & {p for q in other for p in q.changes}:
            text = f"must be set by one axis, got two that set {path}. Take it out of one."
            problems.append(document.problem(loc, text))
    if loc[0] == "arms":  # of settings it is told with those that are named
        for point in found:
            for path, later in overwritten(list(point.changes)):
                problems.append(document.problem(point.places[path], no_effect(later)))
    names = [point.name for point in found]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        text = f"must give every combination its own name, got {name!r} twice. Name the values."
        problems.append(document.problem(loc, text))
    return found, list(dict.fromkeys(problems))


def _joined(parts: Sequence[Point]) -> Point:
    whole = Point("-".join(part.name for part in parts))
    for part in parts:
        whole.axes.update(part.axes)
        whole.changes.update(part.changes)
        whole.places.update(part.places)
    return whole


def _axis(
    document: Document, loc: Loc, axis: str, raw: Any, problems: list[str]
) -> tuple[Point, ...]:
    """Return the points of one axis."""
    if not all(axis.split(".")):
        problems.append(document.problem(loc, "must be a dotted path. Check its dots."))
        return ()
    if not isinstance(raw, list | dict) or (axis == CASE and not isinstance(raw, dict)):
        kind = "a mapping from names to settings" if axis == CASE else "a list or a mapping"
        problems.append(document.problem(loc, f"must be {kind}, got {show(raw)}."))
        return ()
    if len(raw) < 2:
        text = f"must have two values or more, got {len(raw)}. Write a single one into the arm."
        problems.append(document.problem(loc, text))
    entries = raw.items() if isinstance(raw, dict) else ((_text(v), v) for v in raw)
    found = []
    for index, (name, value) in enumerate(entries):
        place: Loc = (*loc, name) if isinstance(raw, dict) else (*loc, index)
        wrong = "" if isinstance(raw, list) and isinstance(value, Scalar) else _plain(raw, value)
        if wrong or (wrong := _name_problem(name)):
            problems.append(document.problem(place, wrong))
        elif axis != CASE:
            shown = value if isinstance(value, Scalar) else name
            found.append(Point(name, {axis: shown}, {axis: value}, {axis: place}))
        elif not isinstance(value, dict):
            text = f"must be a mapping from dotted paths to values, got {show(value)}."
            problems.append(document.problem(place, text))
        else:
            places = {path: (*place, path) for path in value}
            found.append(Point(name, {CASE: name}, dict(value), places))
    return tuple(found)


def _plain(raw: Any, value: Any) -> str:
    """Return what is wrong with a value that has no text of its own to be named by."""
    if isinstance(raw, list):
        return (
            f"must be a plain value, got {show(value)}. Name each: `over: {{axis: {{name: ...}}}}`."
        )
    return "must not be null. Leave it out." if value is None else ""


def _name_problem(name: str) -> str:
    if re.fullmatch(NAME, name):
        return ""
    return (
        "must have a name of lower-case letters, digits, `-`, `_` and `.`, got "
        f"{show(name)}. Name it otherwise."
    )


def _text(value: Any) -> str:
    """Return a value as YAML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def expand(document: Document) -> tuple[Expanded, list[str]]:
    """Return the document with an arm for each point of every arm's axes, and the problems."""
    arms = document.data.get("arms")
    if not isinstance(arms, dict):
        return Expanded(document, {}, {}, frozenset()), []  # validation says so
    made = Document(
        document.file, dict(document.data), dict(document.positions), dict(document.overridden)
    )
    common = document.data.get("common")
    writer = _Writer(document, made, common if isinstance(common, dict) else {})
    made.data["arms"] = expanded = dict[str, Any]()
    axes: dict[str, dict[str, Scalar]] = {}
    bases: dict[str, str] = {}
    for base, raw in arms.items():
        over = isinstance(raw, dict) and OVER in raw
        found: list[Point] = [Point()]
        if over:
            found, wrong = points(document, ("arms", base, OVER), raw[OVER])
            writer.problems += [*wrong, *_overwritten(document, base, raw, found)]
        for point in found:
            name = f"{base}-{point.name}" if over else base
            if bases.get(name) == base:
                continue  # two points of one name, which is told
            if name in expanded or (over and name in arms):
                text = f"must not name an arm that the file has, got {name!r}. Rename one."
                writer.problems.append(document.problem(("arms", base), text))
                continue
            expanded[name] = writer.arm(base, name, raw, point) if over else raw
            axes[name], bases[name] = dict(point.axes), base
    return Expanded(made, axes, bases, frozenset(writer.inherited)), writer.problems


def _overwritten(
    document: Document, base: str, raw: Mapping[str, Any], found: Sequence[Point]
) -> Iterator[str]:
    """Say which of an arm's own settings each of its points overwrites."""
    always = set.intersection(*(set(point.changes) for point in found)) if found else set()
    for path in sorted(always):
        place: Any = raw
        for key in path.split("."):
            place = place.get(key) if isinstance(place, dict) else None
        if place is not None:
            loc: Loc = ("arms", base, *path.split("."))
            text = "must have an effect: an axis sets it in every arm. Remove it."
            yield document.problem(loc, text)


@dataclass
class _Writer:
    """Write points into copies of arms, and where they stand into the places of `made`."""

    document: Document
    made: Document
    common: Mapping[str, Any]
    inherited: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def arm(self, base: str, name: str, raw: Mapping[str, Any], point: Point) -> dict[str, Any]:
        """Return the arm of one point; a path into what `common` says changes a copy of that."""
        self.move(("arms", base), ("arms", name))
        arm = {key: copy.deepcopy(value) for key, value in raw.items() if key != OVER}
        for path, value in point.changes.items():
            first, *rest = keys = path.split(".")
            if rest and first not in arm and first in self.common:
                arm[first] = copy.deepcopy(self.common[first])
                self.inherited.add(first)
                self.move(("common", first), ("arms", name, first))
            place: Any = arm
            for key in keys[:-1]:
                place = place.setdefault(key, {}) if isinstance(place, dict) else None
            if not isinstance(place, dict):
                text = "must go through mappings. Check the path."
                self.problems.append(self.document.problem(point.places[path], text))
                continue
            place[keys[-1]] = copy.deepcopy(value)
            self.move(point.places[path], ("arms", name, *keys))
        return arm

    def move(self, old: Loc, new: Loc) -> None:
        """Let what stands at `old` in the file be what stands at `new`."""
        found = _moved(self.document.positions, old, new)
        self.made.positions.update(found)
        texts = _moved(self.document.overridden, old, new)
        if not found and not texts:  # the whole axis, not this value, was written by `--set`
            texts = {new: self.document.where(old)}
        self.made.overridden.update(texts)


def _moved(places: Mapping[Loc, Place], old: Loc, new: Loc) -> dict[Loc, Place]:
    size = len(old)
    return {(*new, *loc[size:]): found for loc, found in places.items() if loc[:size] == old}
