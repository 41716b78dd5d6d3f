"""Resolve an ablation's raw arms: lay `common` under each, and validate by method."""

from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from bam_lab.spec.messages import describe, nearest, real_path, show
from bam_lab.spec.methods import (
    AverageMethod,
    BAMMethod,
    BTMMethod,
    BTXMethod,
    DenseMethod,
    LoryMethod,
    LoryToSparseMethod,
    MethodSpec,
    SegmentMoEMethod,
    SMEARMethod,
    SoftMoEMethod,
    SparseUpcyclingMethod,
    TokenMergingMethod,
)
from bam_lab.spec.reader import Document, tuples

METHODS: dict[str, type[BaseModel]] = {
    "dense": DenseMethod,
    "average": AverageMethod,
    "btm": BTMMethod,
    "btx": BTXMethod,
    "bam": BAMMethod,
    "sparse_upcycling": SparseUpcyclingMethod,
    "lory": LoryMethod,
    "lory_to_sparse": LoryToSparseMethod,
    "segment_moe": SegmentMoEMethod,
    "token_merging": TokenMergingMethod,
    "smear": SMEARMethod,
    "soft_moe": SoftMoEMethod,
}
_ADAPTER: TypeAdapter[MethodSpec] = TypeAdapter(MethodSpec)


def resolve(document: Document) -> tuple[dict[str, MethodSpec], list[str]]:
    """Return the arms that validate and the problems of the others.

    A key of `common` goes to every arm whose method knows it and that has none of its own; one that
    goes to no arm is a problem, since it would have no effect.
    """
    arms: dict[str, MethodSpec] = {}
    problems: list[str] = []
    common = _mapping(document, "common")
    known_keys: set[str] = set()
    used: set[str] = set()
    for name, raw in _mapping(document, "arms").items():
        loc = ("arms", name)
        tag = raw.get("method") if isinstance(raw, dict) else None
        if not isinstance(raw, dict) or not isinstance(tag, str) or tag not in METHODS:
            text = f"must be a method, got {show(tag)}. {nearest(str(tag), METHODS)}"
            problems.append(document.problem((*loc, "method"), text))
            continue
        known = METHODS[tag].model_fields
        known_keys |= known.keys() - {"method"}
        used |= (common.keys() & known) - raw.keys()
        merged = {key: value for key, value in common.items() if key in known} | raw
        try:
            arms[name] = _ADAPTER.validate_python(tuples(merged))
        except ValidationError as error:
            for item in error.errors(include_url=False):
                item["loc"] = item["loc"][1:]  # without the method
                inner = real_path(merged, item)
                inherited = bool(inner) and inner[0] in common and inner[0] not in raw
                place = ("common",) if inherited else loc
                text = describe(item, inner, METHODS[tag])
                problems.append(document.problem((*place, *inner), text))
    for key in sorted(common.keys() - used):
        text = f"must be known to some arm. {nearest(key, known_keys)}"
        if key in known_keys:
            text = "must have an effect: every arm that knows it has its own. Remove it."
        problems.append(document.problem(("common", key), text))
    if not document.data.get("arms"):
        problems.append(document.problem(("arms",), "must hold at least one arm. Add one."))
    return arms, problems


def _mapping(document: Document, key: str) -> dict[str, Any]:
    """Return a mapping of the file; empty where something else stands, which validation reports."""
    found = document.data.get(key)
    return found if isinstance(found, dict) else {}
