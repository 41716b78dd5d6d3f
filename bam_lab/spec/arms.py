"""Resolve an ablation's raw arms: lay `common` under each, and validate by method.

`data`, what an arm reads, stands beside the settings of its method; every method knows it.
"""

from collections.abc import Collection
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from bam_lab.spec.data import DataSpec
from bam_lab.spec.messages import Loc, describe, nearest, real_path, show
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

DATA = "data"
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


def resolve(
    document: Document, inherited: Collection[str] = ()
) -> tuple[dict[str, MethodSpec], list[str]]:
    """Return the arms that validate and the problems of the others.

    A key of `common` goes to every arm whose method knows it and that has none of its own; one that
    goes to no arm is a problem, since it would have no effect. Those in `inherited`
    went into arms already.
    """
    arms: dict[str, MethodSpec] = {}
    problems: list[str] = []
    common = {key: value for key, value in _mapping(document, "common").items() if key != DATA}
    known_keys: set[str] = {DATA}
    used: set[str] = set(inherited)
    # A path that was written into an arm may have gone into its copy of what `common` says.
    used |= {str(loc[2]) for loc in document.overridden if loc[0] == "arms" and len(loc) > 3}
    for name, raw in _mapping(document, "arms").items():
        loc = ("arms", name)
        tag = raw.get("method") if isinstance(raw, dict) else None
        if not isinstance(raw, dict) or not isinstance(tag, str) or tag not in METHODS:
            text = f"must be a method, got {show(tag)}. {nearest(str(tag), METHODS)}"
            problems.append(document.problem((*loc, "method"), text))
            continue
        raw = {key: value for key, value in raw.items() if key != DATA}
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
                from_common = bool(inner) and inner[0] in common and inner[0] not in raw
                place = ("common",) if from_common else loc
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


def says_data(document: Document, arm: str) -> bool:
    """Say whether an arm, or `common` for it, writes what it reads."""
    return DATA in _mapping(document, "common") or DATA in document.data["arms"][arm]


def resolve_data(
    document: Document, inherited: Collection[str] = ()
) -> tuple[dict[str, DataSpec], list[str]]:
    """Return what arms say that they read, `common` laid under them, and every problem of it.

    `inherited` as in `resolve`.
    """
    data: dict[str, DataSpec] = {}
    problems: list[str] = []
    common, arms = _mapping(document, "common"), _mapping(document, "arms")
    written = {arm: raw for arm, raw in arms.items() if isinstance(raw, dict)}
    for arm, raw in written.items():
        if DATA in raw or DATA in common:
            loc: Loc = ("arms", arm, DATA) if DATA in raw else ("common", DATA)
            found, wrong = _data(document, raw.get(DATA, common.get(DATA)), loc)
            problems += [text for text in wrong if text not in problems]
            data |= {arm: found} if found else {}
    if DATA in common and DATA not in inherited and all(DATA in raw for raw in written.values()):
        text = "must have an effect: every arm has its own. Remove it."
        problems.append(document.problem(("common", DATA), text))
    return data, problems


def _data(document: Document, raw: Any, loc: Loc) -> tuple[DataSpec | None, list[str]]:
    """Return what an arm reads, written at `loc`; or None and every problem."""
    if not raw:
        return None, [document.problem(loc, "must hold at least one setting. Remove it.")]
    if isinstance(raw, dict) and (empty := [key for key, value in raw.items() if value is None]):
        text = "must not be null: what is left out is the recipe's. Remove it."
        return None, [document.problem((*loc, key), text) for key in empty]
    try:
        return DataSpec.model_validate(tuples(raw)), []
    except ValidationError as error:
        found = [(item, real_path(raw, item)) for item in error.errors(include_url=False)]
        return None, [
            document.problem((*loc, *inner), describe(item, inner, DataSpec))
            for item, inner in found
        ]


def _mapping(document: Document, key: str) -> dict[str, Any]:
    """Return a mapping of the file; empty where something else stands, which validation reports."""
    found = document.data.get(key)
    return found if isinstance(found, dict) else {}
