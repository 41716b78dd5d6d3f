"""Write `--set dotted.path=value`, and what settings change, into files before validation."""

import copy
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bam_lab import resources
from bam_lab.errors import SpecError
from bam_lab.spec.messages import nearest, show
from bam_lab.spec.reader import Document, parse_value

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
            f"--set {override}: the value must be plain YAML (no tags, no aliases), got "
            f"{show(text)}. Quote it."
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
    file = target(path)
    keys = tuple(path.split("."))
    changes.setdefault(file, []).append(
        Change(keys if file == "ablation" else keys[1:], value, where)
    )


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
    return changes, problems


def by_file(overrides: Sequence[str]) -> dict[str, list[Change]]:
    """Return the changes of `--set` to each file, under the names that `target` gives.

    Raises:
        SpecError: one cannot be read.
    """
    found: dict[str, list[Change]] = {}
    for text in overrides:
        keys, value = split(text)
        place(found, ".".join(keys), value, f"--set {text}")
    return found


def apply(document: Document, changes: Iterable[Change]) -> Document:
    """Return the document with changes written in; where they come from becomes their place.

    Raises:
        SpecError: a path goes through what is no mapping.
    """
    data = copy.deepcopy(document.data)
    written = dict(document.overridden)
    for change in changes:
        inner: Any = data
        for key in change.keys[:-1]:
            inner = inner.setdefault(key, {}) if isinstance(inner, dict) else None
        if not isinstance(inner, dict):
            raise SpecError(f"{change.where}: the path must go through mappings. Check it.")
        inner[change.keys[-1]] = _new(inner.get(change.keys[-1]), change.value)
        written[change.keys] = change.where
    return Document(document.file, data, document.positions, written)


def _new(old: Any, value: Any) -> Any:
    """Return what a change writes over `old`: of `0.5x` that many times the number that is there.

    So one change suits every scale. Over what is no number it stays text, and validation says so.
    """
    times = re.fullmatch(r"(\d+(?:\.\d+)?)x", value) if isinstance(value, str) else None
    if times is None or isinstance(old, bool) or not isinstance(old, int | float):
        return copy.deepcopy(value)
    product = old * float(times[1])
    return round(product) if isinstance(old, int) else product
