"""Write `--set dotted.path=value`, and what settings change, into files before validation."""

import copy
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bam_lab import resources
from bam_lab.errors import SpecError
from bam_lab.spec.messages import nearest, show
from bam_lab.spec.reader import LARGEST, Document, parse_value

OTHER_FILES = ("recipe", "scale", "model", "corpus")


def split(override: str) -> tuple[list[str], Any]:
    """Split `a.b=value` into its path and its value, read as YAML.

    Raises:
        SpecError: it has no `=`, an empty path or a value that is not YAML.
    """
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise SpecError(
            f"--set {override}: must be dotted.path=value. For example arms.soft.kv=shared."
        )
    try:
        value = parse_value(text)
    except ValueError:
        raise SpecError(
            f"--set {override}: the value must be plain YAML (no tags, no aliases, no number "
            f"beyond 2^64), got {show(text)}. Quote it."
        ) from None
    return keys, value


@dataclass(frozen=True)
class Change:
    """Hold one value to write.

    Attributes:
        keys: its path in its own file.
        where: the place that messages about it name.
    """

    keys: tuple[str, ...]
    value: Any
    where: str


def target(path: str) -> str:
    """Return which file a dotted path goes to: `ablation`, or one of the files that it names."""
    first, _, rest = path.partition(".")
    return first if first in OTHER_FILES and rest else "ablation"


def place(changes: dict[str, list[Change]], path: str, value: Any, where: str) -> None:
    """Add a change to those of its file."""
    file, keys = target(path), _keys(path)
    changes.setdefault(file, []).append(
        Change(keys if file == "ablation" else keys[1:], value, where)
    )


def _keys(path: str) -> tuple[str, ...]:
    """Split a path; what a setting changes is named by a dotted path, which is one key."""
    keys = path.split(".")
    if keys[0] == "settings" and len(keys) > 3:
        return (*keys[:2], ".".join(keys[2:]))
    return tuple(keys)


def overwritten(paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each path that a later one writes over, so that it has no effect; and the later one."""
    places = [(target(path), *path.split(".")) for path in paths]
    for index, place in enumerate(places):
        for later in range(index + 1, len(places)):
            if place[: len(places[later])] == places[later]:
                yield paths[index], paths[later]
                break


def fitted_to(document: Document, scale: str | None) -> tuple[dict[str, list[Change]], list[str]]:
    """Return what an ablation's `at:` changes at a scale (None: its own), and what is wrong."""
    written = document.data.get("at")
    scales = written if isinstance(written, dict) else {}
    folder = resources.folder("configs") / "scale"
    known = [path.stem for path in folder.glob("*.yaml")]
    problems = [
        document.problem(
            ("at", name), f"must name a file of configs/scale, got {name!r}. {nearest(name, known)}"
        )
        for name in map(str, scales)
        if name not in known
    ]
    changes: dict[str, list[Change]] = {}
    name = document.data.get("scale") if scale is None else scale
    own = scales.get(name) if isinstance(name, str) else None
    for path, value in (own if isinstance(own, dict) else {}).items():
        place(changes, path, value, f"{document.where(('at', str(name), path))} (at scale {name})")
    return changes, [*problems, *_at_problems(document, scales)]


def _at_problems(document: Document, scales: dict[str, Any]) -> Iterator[str]:
    """Say what can have no effect under `at:`."""
    for name, written in scales.items():
        if not isinstance(written, dict):
            continue  # validation says so
        for path in written:
            if path == "scale" or path.partition(".")[0] == "at":
                text = "must change what suits a scale, not which one it is. Remove it."
                yield document.problem(("at", name, path), text)
        for path, later in overwritten(list(written)):
            yield document.problem(("at", name, path), no_effect(later))


def no_effect(later: str) -> str:
    """Say that a path has no effect, since `later` is written over it."""
    return f"must have an effect, but {later} is written over it. Take one of the two out."


def by_file(overrides: Sequence[str]) -> dict[str, list[Change]]:
    """Return the changes of `--set` to each file, under the names that `target` gives.

    Raises:
        SpecError: with every one that cannot be read, or has no effect.
    """
    found: dict[str, list[Change]] = {}
    problems, paths = list[str](), list[str]()
    for text in overrides:
        try:
            keys, value = split(text)
        except SpecError as error:
            problems += error.problems
            continue
        paths.append(".".join(keys))
        place(found, paths[-1], value, f"--set {text}")
    problems += [f"--set {path}: {text}" for path in paths if (text := _unsettable(path))]
    problems += [f"--set {path}: {no_effect(later)}" for path, later in overwritten(paths)]
    if problems:
        raise SpecError(problems)
    return found


def _unsettable(path: str) -> str:
    """Return why `--set` cannot change a path; empty where it can."""
    if path == "scale":
        return "must be said by --scale NAME, which takes what `at:` says of it too."
    if path.partition(".")[0] == "at":
        return "must not change `at`, over which it has the last word. Set the value itself."
    return ""


def apply(document: Document, changes: Iterable[Change]) -> Document:
    """Return the document with changes written in; where they come from becomes their place.

    Raises:
        SpecError: with every path that goes through what is no mapping.
    """
    data = copy.deepcopy(document.data)
    written = dict(document.overridden)
    problems = list[str]()
    for change in changes:
        _take_common(data, change.keys)
        inner: Any = data
        for key in change.keys[:-1]:
            inner = inner.setdefault(key, {}) if isinstance(inner, dict) else None
        if not isinstance(inner, dict):
            problems.append(f"{change.where}: the path must go through mappings. Check it.")
            continue
        inner[change.keys[-1]] = _new(inner.get(change.keys[-1]), change.value)
        written[change.keys] = change.where
    if problems:
        raise SpecError(problems)
    return Document(document.file, data, document.positions, written)


def _take_common(data: Any, keys: tuple[str, ...]) -> None:
    """Give an arm what `common` lays under it, where a path leads into that."""
    if len(keys) < 4 or keys[0] != "arms" or not isinstance(data, dict):
        return
    arms, common = data.get("arms"), data.get("common")
    arm = arms.get(keys[1]) if isinstance(arms, dict) else None
    shared = common.get(keys[2]) if isinstance(common, dict) else None
    if isinstance(arm, dict) and keys[2] not in arm and isinstance(shared, dict):
        arm[keys[2]] = copy.deepcopy(shared)


def _new(old: Any, value: Any) -> Any:
    """Return what a change writes over `old`: of `0.5x` that many times the number that is there.

    So one change suits every scale. Over what is no number, and where it would be beyond all
    numbers of a file, it stays text, and validation says so.
    """
    times = re.fullmatch(r"(\d+(?:\.\d+)?)x", value) if isinstance(value, str) else None
    if times is None or isinstance(old, bool) or not isinstance(old, int | float):
        return copy.deepcopy(value)
    product = old * float(times[1])
    if not math.isfinite(product) or abs(product) > LARGEST:
        return value
    return round(product) if isinstance(old, int) else product
