"""Write `--set dotted.path=value` into parsed files, before they are validated."""

import copy
from collections.abc import Sequence
from typing import Any

from bam_lab.errors import SpecError
from bam_lab.spec.messages import show
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


def target(override: str) -> str:
    """Return which file an override goes to: `ablation`, or one of the files that it names."""
    keys, _ = split(override)
    return keys[0] if keys[0] in OTHER_FILES and len(keys) > 1 else "ablation"


def by_file(overrides: Sequence[str]) -> dict[str, list[str]]:
    """Return the overrides of each file, under the names that `target` gives."""
    found: dict[str, list[str]] = {}
    for text in overrides:
        found.setdefault(target(text), []).append(text)
    return found


def apply(document: Document, overrides: list[str]) -> Document:
    """Return the document with overrides written in; their texts become its places."""
    data = copy.deepcopy(document.data)
    written = dict(document.overridden)
    for override in overrides:
        keys, value = split(override)
        keys = keys[1:] if target(override) != "ablation" else keys
        place: Any = data
        for key in keys[:-1]:
            place = place.setdefault(key, {}) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            raise SpecError(f"--set {override}: the path must go through mappings. Check it.")
        place[keys[-1]] = value
        written[tuple(keys)] = f"--set {override}"
    return Document(document.file, data, document.positions, written)
