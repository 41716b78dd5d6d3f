"""Identify a thing by the hash of its canonical JSON; refuse what has no canonical form.

Pydantic specs are dumped without the fields that hold their default, so that a new field with a
default leaves old fingerprints alone (a changed default raises the stage's revision instead).
"""

import hashlib
import json
import math
from collections.abc import Mapping

from pydantic import BaseModel

JSONValue = None | bool | int | float | str | list["JSONValue"] | dict[str, "JSONValue"]


def normalise(value: object, where: str = "value") -> JSONValue:
    """Return `value` as plain JSON data, specs without their defaults.

    Raises:
        TypeError: something in it has no canonical form; the message says where and why.
    """
    match value:
        case BaseModel():
            return normalise(
                value.model_dump(mode="json", by_alias=True, exclude_defaults=True), where
            )
        case None | bool() | int() | str():
            return value
        case float():
            if not math.isfinite(value):
                raise TypeError(f"{where} must be finite to be fingerprinted, got {value}")
            return value
        case list() | tuple():
            return [normalise(item, f"{where}[{i}]") for i, item in enumerate(value)]
        case Mapping():
            return {_key(key, where): normalise(v, f"{where}.{key}") for key, v in value.items()}
        case _:
            raise TypeError(
                f"{where} must be a spec, mapping, list, string, number, boolean or None to be "
                f"fingerprinted, got {type(value).__name__}: {_why(value)}"
            )


def _key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{where} must have strings as keys, got {key!r}")
    return key


def _why(value: object) -> str:
    if callable(value):
        return "the same name can hold other code tomorrow; name the choice in the spec instead"
    if isinstance(value, set | frozenset):
        return "its order differs between processes; use a sorted list"
    return "its text may differ between processes or versions; put its meaning in plain values"


def canonical(value: object) -> str:
    """Return the one JSON text of `value`: sorted keys, no spaces, shortest floats."""
    return json.dumps(
        normalise(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def fingerprint(value: object) -> str:
    """Return the SHA-256 of the canonical JSON of `value`, in 64 hexadecimal digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()
