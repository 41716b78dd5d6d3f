"""Resolve an ablation's raw arms: lay `common` under each, and validate by method."""

from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from bam_lab.spec.messages import describe, nearest, real_path
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

    A key of `common` goes to every arm whose method knows it; one that no arm knows is a problem,
    since it would have no effect.
    """
    arms: dict[str, MethodSpec] = {}
    problems: list[str] = []
    common = _mapping(document, "common")
    used: set[str] = set()
    for name, raw in _mapping(document, "arms").items():
        loc = ("arms", name)
        tag = raw.get("method") if isinstance(raw, dict) else None
        if not isinstance(raw, dict) or not isinstance(tag, str) or tag not in METHODS:
            hint = nearest(str(tag), METHODS)
            problems.append(document.problem((*loc, "method"), f"must be a method. {hint}"))
            continue
        known = METHODS[tag].model_fields
        used |= common.keys() & known
        merged = {key: value for key, value in common.items() if key in known} | raw
        try:
            arms[name] = _ADAPTER.validate_python(tuples(merged))
        except ValidationError as error:
            for item in error.errors(include_url=False):
                inner = real_path(merged, item["loc"][1:])
                inherited = bool(inner) and inner[0] in common and inner[0] not in raw
                place = ("common",) if inherited else loc
                text = describe(item, inner, METHODS[tag])
                problems.append(document.problem((*place, *inner), text))
    for key in sorted(common.keys() - used):
        known_keys = {field for model in METHODS.values() for field in model.model_fields}
        hint = nearest(key, known_keys - {key})
        problems.append(document.problem(("common", key), f"must be known to some arm. {hint}"))
    if not document.data.get("arms"):
        problems.append(document.problem(("arms",), "must hold at least one arm. Add one."))
    return arms, problems


def _mapping(document: Document, key: str) -> dict[str, Any]:
    """Return a mapping of the file; empty where something else stands, which validation reports."""
    found = document.data.get(key)
    return found if isinstance(found, dict) else {}
